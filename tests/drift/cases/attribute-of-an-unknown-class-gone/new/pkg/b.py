def b(config):
    return [config.kinds]
