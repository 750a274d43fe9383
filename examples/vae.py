"""Trains a variational autoencoder on handwritten digits.

    python examples/vae.py --model_dir=runs/vae --max_steps=1000
    python -m trainer prove examples/vae.py:Vae --steps=120 --kills=3

The noise of the reparametrisation comes from a `tf.random.Generator` held as an attribute: its
state is in each checkpoint, so a resumed run draws on where the other stopped.
"""

import numpy as np
import sklearn.datasets
import tensorflow as tf

import trainer

BATCH, LATENT, TRAINING = 50, 4, 1500


def load_images():
    """Returns the 8x8 digits that scikit-learn ships, mixed: float32[1797, 8, 8, 1] from 0 to 1."""
    images = sklearn.datasets.load_digits().images[..., np.newaxis] / 16.0
    return np.random.default_rng(0).permutation(images).astype(np.float32)


class Vae(trainer.Trainer):
    """A convolutional encoder and decoder, a normal posterior and prior, Bernoulli pixels."""

    def build(self):
        self.encoder = tf.keras.Sequential(
            [
                tf.keras.Input((8, 8, 1)),
                tf.keras.layers.Conv2D(16, 3, strides=2, padding="same", activation="relu"),
                tf.keras.layers.Conv2D(32, 3, strides=2, padding="same", activation="relu"),
                tf.keras.layers.Flatten(),
                tf.keras.layers.Dense(2 * LATENT),
            ],
            name="encoder",
        )
        self.decoder = tf.keras.Sequential(
            [
                tf.keras.Input((LATENT,)),
                tf.keras.layers.Dense(2 * 2 * 32, activation="relu"),
                tf.keras.layers.Reshape((2, 2, 32)),
                tf.keras.layers.Conv2DTranspose(
                    16, 3, strides=2, padding="same", activation="relu"
                ),
                tf.keras.layers.Conv2DTranspose(1, 3, strides=2, padding="same"),
            ],
            name="decoder",
        )
        self.variables = self.encoder.trainable_variables + self.decoder.trainable_variables
        self.optimizer = tf.keras.optimizers.Adam(2e-3)
        self.optimizer.build(self.variables)
        self.noise = tf.random.Generator.from_seed(1)

    def train_dataset(self):
        return trainer.data.Indexed(load_images()[:TRAINING], batch_size=BATCH)

    def eval_dataset(self):
        return tf.data.Dataset.from_tensor_slices(load_images()[TRAINING:]).batch(99)

    def bound(self, images):
        """Returns the two parts of the negative evidence lower bound, means over the batch."""
        mean, log_variance = tf.split(self.encoder(images), 2, axis=1)
        latent = mean + tf.exp(0.5 * log_variance) * self.noise.normal(tf.shape(mean))
        pixels = tf.nn.sigmoid_cross_entropy_with_logits(images, self.decoder(latent))
        divergence = 0.5 * (tf.square(mean) + tf.exp(log_variance) - log_variance - 1.0)
        return (
            tf.reduce_mean(tf.reduce_sum(pixels, axis=(1, 2, 3))),
            tf.reduce_mean(tf.reduce_sum(divergence, axis=1)),
        )

    def train_step(self, images):
        with tf.GradientTape() as tape:
            reconstruction, divergence = self.bound(images)
            loss = reconstruction + divergence
        gradients = tape.gradient(loss, self.variables)
        self.optimizer.apply_gradients(zip(gradients, self.variables, strict=True))
        return {"loss": loss, "reconstruction": reconstruction, "divergence": divergence}

    def eval_step(self, images):
        reconstruction, divergence = self.bound(images)  # evaluate() gives the generator back
        return {"loss": reconstruction + divergence}


class Report(trainer.Hook):
    """Prints the bound on the held-out digits when a run ends."""

    def end(self, ctx):
        if ctx.error is None:
            print(f"held-out loss {ctx.trainer.evaluate()['loss']:.3f}")

    def get_state(self):
        return {}


if __name__ == "__main__":
    trainer.app.run(Vae, hooks=lambda: [trainer.LogProgress(every_steps=100), Report()])
