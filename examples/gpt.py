"""Trains a small GPT on characters: float16, loss scaling, gradient accumulation, warm-up.

    python examples/gpt.py --model_dir=runs/gpt --max_steps=1200
    python -m trainer prove examples/gpt.py:Gpt --steps=60 --kills=3

The text is what scikit-learn says about the data sets that it ships. A step is a micro-batch: four
of them make one update of the weights, and a kill between the second and the third loses neither.
"""

import importlib.resources

import numpy as np
import tensorflow as tf

import trainer

CONTEXT, WIDTH, HEADS, BLOCKS = 48, 64, 4, 2
MICRO_BATCH, ACCUMULATED = 16, 4


def load_text():
    """Returns the descriptions of scikit-learn's data sets, one after the other."""
    folder = importlib.resources.files("sklearn.datasets.descr")
    files = sorted(file.name for file in folder.iterdir() if file.name.endswith(".rst"))
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in files)


class Characters:
    """A text as numbers, and back."""

    def __init__(self, text):
        self.alphabet = sorted(set(text))
        number = {character: at for at, character in enumerate(self.alphabet)}
        self.numbers = np.array([number[character] for character in text], np.int32)

    def text(self, numbers):
        """Returns the characters of some numbers."""
        return "".join(self.alphabet[number] for number in numbers)


class Windows:
    """Every stretch of `CONTEXT + 1` characters of a text, addressed by where it starts."""

    def __init__(self, numbers):
        self._numbers = tf.constant(numbers)

    def __len__(self):
        return len(self._numbers) - CONTEXT

    def lookup(self, indices):
        """Returns int32[B, CONTEXT + 1]."""
        return tf.gather(
            self._numbers, indices[:, tf.newaxis] + tf.range(CONTEXT + 1, dtype="int64")
        )


class Block(tf.keras.layers.Layer):
    """Causal attention and a feed-forward layer, each after a normalisation and around a bypass."""

    def __init__(self, **settings):
        super().__init__(**settings)
        layers, policy = tf.keras.layers, self.dtype_policy
        self.before_attention = layers.LayerNormalization(dtype=policy)
        self.attention = layers.MultiHeadAttention(HEADS, WIDTH // HEADS, dropout=0.1, dtype=policy)
        self.before_hidden = layers.LayerNormalization(dtype=policy)
        self.hidden = layers.Dense(4 * WIDTH, activation="gelu", dtype=policy)
        self.projection = layers.Dense(WIDTH, dtype=policy)
        self.dropout = layers.Dropout(0.1, dtype=policy)

    def call(self, inputs, training=False):
        normal = self.before_attention(inputs)
        inputs += self.attention(normal, normal, use_causal_mask=True, training=training)
        hidden = self.projection(self.hidden(self.before_hidden(inputs)))
        return inputs + self.dropout(hidden, training=training)


class Transformer(tf.keras.Model):
    """From int32[B, T] to the logits of each next character: float32[B, T, characters]."""

    def __init__(self, characters):
        super().__init__()
        policy = tf.keras.mixed_precision.Policy("mixed_float16")
        self.token = tf.keras.layers.Embedding(characters, WIDTH, dtype=policy)
        self.place = tf.keras.layers.Embedding(CONTEXT, WIDTH, dtype=policy)
        self.blocks = [Block(dtype=policy) for _ in range(BLOCKS)]
        self.normal = tf.keras.layers.LayerNormalization(dtype=policy)
        self.head = tf.keras.layers.Dense(characters, dtype="float32")  # a softmax needs the range

    def call(self, numbers, training=False):
        state = self.token(numbers) + self.place(tf.range(tf.shape(numbers)[1]))
        for block in self.blocks:
            state = block(state, training=training)
        return self.head(self.normal(state))


class Gpt(trainer.Trainer):
    """Predicts the next character."""

    def build(self):
        self.characters = Characters(load_text())
        self.model = Transformer(len(self.characters.alphabet))
        warm_up = tf.keras.optimizers.schedules.CosineDecay(
            initial_learning_rate=0.0, warmup_target=3e-3, warmup_steps=100, decay_steps=2000
        )
        self.optimizer = tf.keras.optimizers.LossScaleOptimizer(
            tf.keras.optimizers.AdamW(
                warm_up, global_clipnorm=1.0, gradient_accumulation_steps=ACCUMULATED
            ),
            initial_scale=2.0**24,  # too much: the first steps are declined, until it fits
            dynamic_growth_steps=500,
        )
        # So that the step makes no variables: it is traced once then, otherwise twice.
        self.model(tf.zeros((1, CONTEXT), tf.int32))
        self.optimizer.build(self.model.trainable_variables)

    def train_dataset(self):
        return trainer.data.Indexed(Windows(self.characters.numbers), batch_size=MICRO_BATCH)

    def train_step(self, numbers):
        with tf.GradientTape() as tape:
            logits = self.model(numbers[:, :-1], training=True)
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(numbers[:, 1:], logits)
            )
            scaled = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, self.model.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
        return {"loss": loss, "loss_scale": self.optimizer.dynamic_scale}


class Continue(trainer.Hook):
    """Prints how the model goes on from a beginning when a run ends."""

    def __init__(self, beginning="The data set contains", characters=100):
        self.beginning, self.length = beginning, characters

    def end(self, ctx):
        if ctx.error is None:
            characters, model = ctx.trainer.characters, ctx.trainer.model
            known = [characters.alphabet.index(character) for character in self.beginning]
            for _ in range(self.length):
                logits = model(tf.constant([known[-CONTEXT:]]))
                known.append(int(tf.argmax(logits[0, -1])))
            print(characters.text(known))

    def get_state(self):
        return {}


if __name__ == "__main__":
    trainer.app.run(Gpt, hooks=lambda: [trainer.LogProgress(every_steps=100), Continue()])
