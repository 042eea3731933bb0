"""Calls of remote services over HTTP: limited in time, authorised, repeated only where that changes nothing."""
