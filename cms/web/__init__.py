"""gunicorn's worker class: an event loop for clients, threads for the application."""
