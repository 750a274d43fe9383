"""Reads a text through a stateful LSTM: it remembers one batch when it reads the next.

    python examples/lstm_stateful.py --model_dir=runs/lstm --max_steps=1000
    python -m trainer prove examples/lstm_stateful.py:StatefulLstm --steps=120 --kills=3

Sixteen readers start at sixteen places of the text and read on, window after window. At the end of
a pass they go back to their places and forget. Memory and place are part of each checkpoint.
"""

import importlib.resources

import numpy as np
import tensorflow as tf

import trainer

READERS, WINDOW, WIDTH = 16, 32, 96


def load_text():
    """Returns the descriptions of scikit-learn's data sets, one after the other."""
    folder = importlib.resources.files("sklearn.datasets.descr")
    files = sorted(file.name for file in folder.iterdir() if file.name.endswith(".rst"))
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in files)


class StatefulLstm(trainer.Trainer):
    """Predicts the next character."""

    def build(self):
        text = load_text()
        alphabet = {character: number for number, character in enumerate(sorted(set(text)))}
        self.numbers = np.array([alphabet[character] for character in text], np.int32)
        self.windows = (len(text) // READERS - 1) // WINDOW  # of one pass
        self.lstm = tf.keras.layers.LSTM(WIDTH, stateful=True, return_sequences=True)
        self.model = tf.keras.Sequential(
            [
                tf.keras.Input(batch_shape=(READERS, WINDOW)),
                tf.keras.layers.Embedding(len(alphabet), WIDTH),
                self.lstm,
                tf.keras.layers.Dropout(0.1),
                tf.keras.layers.Dense(len(alphabet)),
            ]
        )
        self.optimizer = tf.keras.optimizers.Adam(3e-3, clipnorm=1.0)
        self.optimizer.build(self.model.trainable_variables)

    def train_dataset(self):
        places = np.arange(READERS) * (len(self.numbers) // READERS)

        def window(number):
            at = places[:, np.newaxis] + number * WINDOW + tf.range(WINDOW + 1, dtype=tf.int64)
            return {"characters": tf.gather(self.numbers, at), "first": number == 0}

        return tf.data.Dataset.range(self.windows).map(window).prefetch(tf.data.AUTOTUNE)

    def train_step(self, batch):
        tf.cond(batch["first"], self.forget, lambda: None)
        characters = batch["characters"]
        with tf.GradientTape() as tape:
            logits = self.model(characters[:, :-1], training=True)
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(characters[:, 1:], logits)
            )
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"loss": loss}

    def forget(self):
        """Empties the memory of all readers."""
        for memory in self.lstm.states:
            memory.assign(tf.zeros_like(memory))


if __name__ == "__main__":
    trainer.app.run(StatefulLstm, hooks=lambda: [trainer.LogProgress(every_steps=100)])
