"""Lists files and topics of messages, and reads the messages of a range."""
