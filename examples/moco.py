"""Learns features of handwritten digits without labels: MoCo, momentum contrast.

    python examples/moco.py --model_dir=runs/moco --max_steps=600
    python -m trainer prove examples/moco.py:Moco --steps=120 --kills=3

Two things that a checkpoint of model and optimizer would miss decide the future here: the key
encoder, a moving average that no gradient reaches, and the queue of keys of earlier batches.
"""

import numpy as np
import sklearn.datasets
import tensorflow as tf

import trainer

BATCH, QUEUE, FEATURES, TRAINING = 64, 512, 32, 1500
TEMPERATURE, MOMENTUM = 0.2, 0.99


def load_digits():
    """Returns scikit-learn's 8x8 digits, mixed: float32[1797, 8, 8, 1] and int64[1797]."""
    digits = sklearn.datasets.load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = digits.images[order][..., np.newaxis] / 16.0
    return images.astype(np.float32), digits.target[order].astype(np.int64)


def make_encoder():
    """Returns a model from images to features of length 1: float32[B, 32]."""
    return tf.keras.Sequential(
        [
            tf.keras.Input((8, 8, 1)),
            tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            tf.keras.layers.Conv2D(32, 3, strides=2, padding="same"),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.ReLU(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(FEATURES),
            tf.keras.layers.UnitNormalization(),
        ]
    )


def view(images, seed):
    """Returns each image moved by up to a pixel, noisy and of another contrast.

    Args:
        images: float32[B, 8, 8, 1].
        seed: int32[2].
    """
    seeds = tf.unstack(tf.random.split(seed, 3))
    batch = tf.shape(images)[0]
    padded = tf.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    corner = tf.random.stateless_uniform((2, batch, 1), seeds[0], maxval=3, dtype=tf.int32)
    rows = tf.gather(padded, corner[0] + tf.range(8), axis=1, batch_dims=1)
    moved = tf.gather(rows, corner[1] + tf.range(8), axis=2, batch_dims=1)
    contrast = tf.random.stateless_uniform((batch, 1, 1, 1), seeds[1], 0.6, 1.4)
    noise = tf.random.stateless_normal(tf.shape(images), seeds[2], stddev=0.1)
    return contrast * moved + noise


def two_views(images, seed):
    """Returns two views of a batch; `Indexed` calls it with a seed that belongs to this batch."""
    one, other = tf.unstack(tf.random.split(seed, 2))
    return view(images, one), view(images, other)


class Moco(trainer.Trainer):
    """Tells the other view of an image from the views of 512 others in a queue."""

    def build(self):
        self.encoder = make_encoder()
        self.key_encoder = make_encoder()
        self.key_encoder.set_weights(self.encoder.get_weights())
        self.key_encoder.trainable = False
        self.optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9, weight_decay=1e-4)
        self.optimizer.build(self.encoder.trainable_variables)
        start = tf.random.stateless_normal((QUEUE, FEATURES), seed=(0, 0))
        self.queue = tf.Variable(tf.math.l2_normalize(start, axis=1), trainable=False)
        self.oldest = tf.Variable(0, trainable=False)  # row of the queue that is replaced next

    def train_dataset(self):
        images = load_digits()[0][:TRAINING]
        return trainer.data.Indexed(images, batch_size=BATCH, map_fn=two_views)

    def train_step(self, views):
        keys = self.key_encoder(views[1], training=True)
        with tf.GradientTape() as tape:
            queries = self.encoder(views[0], training=True)
            right = tf.reduce_sum(queries * keys, axis=1, keepdims=True)
            wrong = tf.matmul(queries, self.queue, transpose_b=True)
            logits = tf.concat([right, wrong], axis=1) / TEMPERATURE
            labels = tf.zeros(tf.shape(logits)[0], tf.int32)
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            )
        variables = self.encoder.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        self.follow()
        self.enqueue(keys)
        found = tf.reduce_mean(tf.cast(tf.argmax(logits, axis=1) == 0, tf.float32))
        return {"loss": loss, "found": found}

    def follow(self):
        """Moves the key encoder a little towards the encoder."""
        for mine, theirs in zip(self.key_encoder.weights, self.encoder.weights, strict=True):
            mine.assign(MOMENTUM * mine + (1.0 - MOMENTUM) * theirs)

    def enqueue(self, keys):
        """Puts the keys of a batch in the place of the oldest ones."""
        rows = (self.oldest + tf.range(BATCH)) % QUEUE
        self.queue.scatter_nd_update(rows[:, tf.newaxis], keys)
        self.oldest.assign((self.oldest + BATCH) % QUEUE)


class NearestNeighbours(trainer.Hook):
    """Prints how well the nearest training digit tells a held-out one's label when a run ends."""

    def end(self, ctx):
        if ctx.error is None:
            images, labels = load_digits()
            features = ctx.trainer.encoder(images, training=False)
            known, asked = features[:TRAINING], features[TRAINING:]
            nearest = tf.argmax(tf.matmul(asked, known, transpose_b=True), axis=1)
            accuracy = np.mean(labels[:TRAINING][nearest] == labels[TRAINING:])
            print(f"held-out accuracy of the nearest neighbour {accuracy:.4f}")

    def get_state(self):
        return {}


if __name__ == "__main__":
    trainer.app.run(Moco, hooks=lambda: [trainer.LogProgress(every_steps=100), NearestNeighbours()])
