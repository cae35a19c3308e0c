def b(config):
    return [config.num_hash_layers]
