"""Files in object storage: their addresses, the logins to them, and the few things that the product does with them."""
