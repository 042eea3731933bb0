"""Files in object storage: their addresses, logins, and the operations on them that the product needs."""
