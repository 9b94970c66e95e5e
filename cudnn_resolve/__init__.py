"""Plan GPU deep-learning environments that load and run: driver, CUDA, cuDNN and frameworks solved together."""

__version__ = "0.1.0"
