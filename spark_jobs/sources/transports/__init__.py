"""Lists files of messages, and reads the messages of a range."""
