"""Messages of Qlik and Talend tasks on Kafka: JSON and Avro."""
