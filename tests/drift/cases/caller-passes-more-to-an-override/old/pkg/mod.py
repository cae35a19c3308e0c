class Backend:
    def forward_step(self, x):
        return x


class Runner:
    def __init__(self, backend: Backend):
        self.backend = backend

    def run(self):
        return self.backend.forward_step(1)
