class Backend:
    def forward(self, x):
        return x

    def finish_step(self):
        return None
