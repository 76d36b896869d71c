"""Files and folders: rows, contents in storage locations, media types, images."""
