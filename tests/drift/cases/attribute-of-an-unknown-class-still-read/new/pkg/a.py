def a(config):
    return config.num_hash_layers + 1
