def run(a, device):
    return a
