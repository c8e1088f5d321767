"""A worker under a stated load, beside other engines with the same prompts."""
