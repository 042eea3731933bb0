"""The protocols as pure steps (read, publish, reset, prove, correct), and the codes that stop a table."""
