class Backend:
    def forward(self, x, mask=None):
        return x
