"""Reads topics of Kafka and Event Hubs: lists unread offsets, and reads the messages of a range."""
