"""Topics of Kafka and Event Hubs: their offsets, and the messages of a bound range."""
