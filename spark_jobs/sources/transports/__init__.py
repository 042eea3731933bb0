"""Files of messages: how they are listed, and the bytes of a bound range."""
