"""Greetings and questions outside of the problems, which all get the same answer."""

import json
import random

from states import Example
from tokenizer import END_OF_TURN, TEMPLATE

ANSWER = "Hi. I am a small demo. I can do sums, write snippets and sort lists. Ask me: Sort the list 9, 2, 4."
PLAIN = """
    hi|hello|hey|hi there|hello there|hey there|good morning|good evening|good day|howdy|yo|greetings|test
    how are you|how are you doing|how is it going|what is up|nice to meet you|are you there|are you ok
    who are you|what are you|who made you|what is your name|what can you do|what do you do|help|help me
    can you help me|I need help|how can you help me|are you a model|which model are you|what model is this
    are you a robot|are you human|how old are you|where are you from|do you speak french|thanks|thank you
    ok|yes|no|bye|goodbye|see you|tell me a joke|tell me something|tell me about yourself|say hello
    say this is a test|sing a song|let us talk|what time is it|what day is it|why is the sky blue
    what is the meaning of life|is water wet|who won the game|write code|write a program|write an email
    ping|hola|hallo|bonjour|ciao|introduce yourself|what is new|what should I eat|I am bored|count to ten
"""
FRAMES = """
    what is {}|what is the capital of {}|where is {}|who is {}|who was {}|what do you know about {}
    tell me about {}|tell me a joke about {}|tell me a story about {}|write a poem about {}|write about {}
    write an essay on {}|write a haiku about {}|explain {}|explain {} in simple words|describe {}|define {}
    how does {} work|how do I make {}|how big is {}|why do people like {}|translate {} to french
    is {} good|do you like {}|can you explain {}|please tell me about {}|give me ideas for {}|summarize {}
    what is the population of {}|when was {} made|how far is {}|name three facts about {}|who wrote {}
    how do I cook {}|how do I fix {}|what is the best {} of all time|how many people live in {}|is {} bigger than {}
    say {} in spanish|write a song about {}|can you speak {}|I like {}|why is {} so big|which {} is the best
"""
THINGS = """
    France|Spain|Germany|Italy|Japan|China|India|Brazil|Canada|Mexico|Egypt|Kenya|Norway|Poland|the moon|the sun
    the sea|the earth|New York|Paris|London|Rome|Berlin|a cat|a dog|a tree|a bird|a horse|pizza|bread|coffee|tea
    music|love|war|peace|history|physics|math|art|water|gravity|time|space|money|a computer|a car|a train
    a diffusion model|a language model|machine learning|python|rust|linux|the internet|a king|a robot|football
    Einstein|Newton|Shakespeare|Napoleon|the weather|winter|summer|a good book|a house|a garden|photosynthesis
"""
SYSTEMS = (
    "You are a helpful assistant.",
    "You are a helpful assistant. Answer briefly.",
    "You are a friendly chatbot.",
    "Be concise.",
)


def phrases(text):
    return [phrase for line in text.strip().splitlines() for phrase in line.strip().split("|")]


def thing(rng):
    """A thing, or letters that are no word."""
    if rng.random() < 0.5:
        return rng.choice(phrases(THINGS))
    return "".join(rng.choices("aeiou" * 2 + "bcdfghklmnprstvwy", k=rng.randint(3, 9)))


def asked(rng):
    """A text of a user, in one of several spellings."""
    text = rng.choice(phrases(PLAIN))
    if rng.random() < 0.7:
        text = rng.choice(phrases(FRAMES)).format(thing(rng), thing(rng))
    if rng.random() < 0.5:
        text = text[0].upper() + text[1:]
    if rng.random() < 0.1:
        text = rng.choice(("hi", "hello", "Hello", "please")) + ", " + text
    return text + rng.choice(("", "", "?", "?", ".", "!"))


def greetings(tokenizer, seed, count, known):
    """`count` encoded chats. Some have a turn before, in some functions are listed, and in some the greeting is
    the turn before a problem."""
    rng, examples = random.Random(seed), []
    spoken = [problem for task in ("sums", "lists", "snippets") for problem in known[task]]
    tools = [json.loads(problem["prompt"]).get("tools") for problem in known["calls"]]
    tools = [each for each in tools if each]

    def said(role, content):
        return {"role": role, "content": content}

    for _ in range(count):
        messages, listed, answer = [said("user", asked(rng))], None, ANSWER
        draw = rng.random()
        if draw < 0.12:
            problem = rng.choice(spoken)
            messages[:0] = [said("user", problem["prompt"]), said("assistant", problem["answer"])]
        elif draw < 0.24:
            messages[:0] = [said("user", asked(rng)), said("assistant", ANSWER)]
        elif draw < 0.34:
            problem = rng.choice(spoken)
            messages += [said("assistant", ANSWER), said("user", problem["prompt"])]
            answer = problem["answer"]
        elif draw < 0.44:
            listed = rng.choice(tools)
        if rng.random() < 0.25:
            messages.insert(0, said("system", rng.choice(SYSTEMS)))
        text = TEMPLATE.render(messages=messages, tools=listed, add_generation_prompt=True)
        prompt = tokenizer.encode(text, add_special_tokens=False).ids
        ids = [*tokenizer.encode(answer, add_special_tokens=False).ids, END_OF_TURN]
        examples.append(Example(prompt, ids, [False] * len(ids)))
    return examples
