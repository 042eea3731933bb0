"""Topics of Kafka and Event Hubs: which offsets there are, and the messages of a bound range."""
