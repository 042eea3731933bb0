"""Reads messages of Qlik and Talend tasks on Kafka, in JSON and Avro."""
