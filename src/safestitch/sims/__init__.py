"""The field's simulators and pictures of them."""
