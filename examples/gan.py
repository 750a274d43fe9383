"""Trains a GAN that draws handwritten digits: two optimizers, one update of each in every step.

    python examples/gan.py --model_dir=runs/gan --max_steps=600
    python -m trainer prove examples/gan.py:Gan --steps=120 --kills=3

`runs/gan/samples-*.png` shows what the same noise becomes as training goes on.
"""

import os

import numpy as np
import sklearn.datasets
import tensorflow as tf

import trainer

BATCH, NOISE = 64, 32


def make_generator():
    """Returns a model from float32[B, 32] to images: float32[B, 8, 8, 1] from -1 to 1."""
    return tf.keras.Sequential(
        [
            tf.keras.Input((NOISE,)),
            tf.keras.layers.Dense(4 * 4 * 32, use_bias=False),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.ReLU(),
            tf.keras.layers.Reshape((4, 4, 32)),
            tf.keras.layers.Conv2DTranspose(16, 4, strides=2, padding="same", use_bias=False),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.ReLU(),
            tf.keras.layers.Conv2D(1, 3, padding="same", activation="tanh"),
        ],
        name="generator",
    )


def make_discriminator():
    """Returns a model from images to a logit, above 0 for what it takes for real: float32[B, 1]."""
    return tf.keras.Sequential(
        [
            tf.keras.Input((8, 8, 1)),
            tf.keras.layers.Conv2D(16, 3, strides=2, padding="same"),
            tf.keras.layers.LeakyReLU(0.2),
            tf.keras.layers.Dropout(0.1),
            tf.keras.layers.Conv2D(32, 3, strides=2, padding="same"),
            tf.keras.layers.LeakyReLU(0.2),
            tf.keras.layers.Dropout(0.1),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(1),
        ],
        name="discriminator",
    )


class Gan(trainer.Trainer):
    """A small DCGAN."""

    def build(self):
        self.generator = make_generator()
        self.discriminator = make_discriminator()
        self.generator_optimizer = tf.keras.optimizers.Adam(1e-3, beta_1=0.5)
        self.discriminator_optimizer = tf.keras.optimizers.Adam(1e-3, beta_1=0.5)
        self.generator_optimizer.build(self.generator.trainable_variables)
        self.discriminator_optimizer.build(self.discriminator.trainable_variables)
        self.noise = tf.random.Generator.from_seed(1)
        self.cross_entropy = tf.keras.losses.BinaryCrossentropy(from_logits=True)

    def train_dataset(self):
        images = sklearn.datasets.load_digits().images[..., np.newaxis] / 8.0 - 1.0
        return trainer.data.Indexed(images.astype(np.float32), batch_size=BATCH)

    def train_step(self, real):
        fake = self.generator(self.noise.normal((BATCH, NOISE)), training=True)
        with tf.GradientTape() as tape:
            on_real = self.discriminator(real, training=True)
            on_fake = self.discriminator(fake, training=True)
            discriminator_loss = self.cross_entropy(
                tf.fill(tf.shape(on_real), 0.9), on_real
            ) + self.cross_entropy(tf.zeros_like(on_fake), on_fake)
        update(self.discriminator_optimizer, self.discriminator, tape, discriminator_loss)

        with tf.GradientTape() as tape:
            fake = self.generator(self.noise.normal((BATCH, NOISE)), training=True)
            judged = self.discriminator(fake, training=True)
            generator_loss = self.cross_entropy(tf.ones_like(judged), judged)
        update(self.generator_optimizer, self.generator, tape, generator_loss)

        right = tf.concat([on_real > 0, on_fake < 0], axis=0)
        return {
            "generator_loss": generator_loss,
            "discriminator_loss": discriminator_loss,
            "discriminator_accuracy": tf.reduce_mean(tf.cast(right, tf.float32)),
        }


def update(optimizer, model, tape, loss):
    """Takes one step of an optimizer on the variables of one of the two models."""
    variables = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))


class DrawSamples(trainer.Hook):
    """Writes a picture of what the generator makes of the same 40 points of noise each time."""

    def __init__(self, every_steps=200):
        self.every_steps = every_steps

    def after_step(self, ctx):
        noise = tf.random.stateless_normal((40, NOISE), seed=(0, 0))
        images = ctx.trainer.generator(noise, training=False)
        grid = tf.reshape(tf.transpose(tf.reshape(images, (5, 8, 8, 8)), (0, 2, 1, 3)), (40, 64, 1))
        png = tf.io.encode_png(tf.cast((grid + 1.0) * 127.5, tf.uint8))
        tf.io.write_file(os.path.join(ctx.trainer.model_dir, f"samples-{ctx.step:06d}.png"), png)

    def get_state(self):
        return {}


if __name__ == "__main__":
    trainer.app.run(Gan, hooks=lambda: [trainer.LogProgress(every_steps=100), DrawSamples()])
