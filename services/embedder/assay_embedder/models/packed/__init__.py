"""A forward pass without padding, for encoders of the BERT and RoBERTa families."""
