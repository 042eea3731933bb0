"""Files of messages: which there are, and the bytes of a bound range."""
