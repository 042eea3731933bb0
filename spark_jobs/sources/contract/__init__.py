"""What every format takes and gives: messages in, rows of the change log out."""
