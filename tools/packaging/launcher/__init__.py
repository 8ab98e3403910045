"""LegoAI's programs with the libraries they need; torch is another wheel's."""
