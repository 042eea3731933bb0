"""The protocols as pure steps: read, publish, reset, prove, correct; and the codes by which a table stops."""
