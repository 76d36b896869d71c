"""Falcon resources, in modules called after their routes: requests and answers translated."""
