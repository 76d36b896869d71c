"""What a request says, and how it is read: bodies, forms, cookies, paths, origins."""
