"""The command ``gravity bench rag``: a whole request with documents, against reading all of them."""
