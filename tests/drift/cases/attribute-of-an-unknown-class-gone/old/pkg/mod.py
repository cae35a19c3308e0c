def build(config):
    return config.num_hash_layers
