"""Mail: posted in a transaction, rendered and sent by a worker."""
