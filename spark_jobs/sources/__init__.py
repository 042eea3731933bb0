"""Reads change data from sources: a format decodes messages; a transport lists the unread ranges and reads them."""
