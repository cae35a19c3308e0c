class Backend:
    def forward(self, x):
        return x
