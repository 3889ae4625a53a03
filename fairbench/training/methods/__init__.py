"""The methods, a page each."""
