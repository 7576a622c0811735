"""Carriers and PBXs: each one's wire format mapped to the same call events and commands. Sans-IO."""
