"""The two numbers that say whether two halves of modeld fit together."""

VERSION = "0.1.0"
"""The package's version, for people."""

PROTOCOL = 1
"""The wire's version, for programs: halves with different numbers refuse each other (W2)."""
