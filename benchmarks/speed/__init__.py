"""Seconds to a measured error, beside every peer."""
