"""Render values as text, JSON, HTML and files of other formats; nothing here prints."""
