"""Everyday phrases, written for this project: what short talk needs and the sources hold little or nothing of."""

GREETINGS = {
    "Good morning": "Guten Morgen",
    "Good evening": "Guten Abend",
    "Good afternoon": "Guten Tag",
    "Good day": "Guten Tag",
    "Good night": "Gute Nacht",
    "Hello": "Hallo",
    "Welcome": "Willkommen",
    "Goodbye": "Auf Wiedersehen",
    "Thank you": "Danke",
    "Thank you very much": "Vielen Dank",
    "See you tomorrow": "Bis morgen",
}

ADDRESSES = {
    "ladies and gentlemen": "meine Damen und Herren",
    "ladies": "meine Damen",
    "gentlemen": "meine Herren",
    "everyone": "alle zusammen",
    "my friend": "mein Freund",
    "my friends": "meine Freunde",
    "my dear colleagues": "liebe Kollegen",
    "children": "Kinder",
    "Tom": "Tom",
    "Mr. Miller": "Herr Müller",
    "Mrs. Schmidt": "Frau Schmidt",
    "": "",
}
"""Who is greeted, with each of the greetings."""

SENTENCES = {
    "We had nice weather.": "Wir hatten schönes Wetter.",
    "The weather was nice yesterday.": "Das Wetter war gestern schön.",
    "Is the weather nice?": "Ist das Wetter schön?",
    "The weather is bad today and we stay at home.": "Das Wetter ist heute schlecht und wir bleiben zu Hause.",
    "I want to eat and sleep.": "Ich will essen und schlafen.",
    "We want to drink tea and eat bread.": "Wir wollen Tee trinken und Brot essen.",
    "She wants to read a book and listen to music.": "Sie will ein Buch lesen und Musik hören.",
    "We want to go home and sleep.": "Wir wollen nach Hause gehen und schlafen.",
    "I want to drink water and eat an apple.": "Ich will Wasser trinken und einen Apfel essen.",
    "They want to buy a house and have children.": "Sie wollen ein Haus kaufen und Kinder haben.",
    "You can stay here and eat with us.": "Du kannst hier bleiben und mit uns essen.",
    "We would like to eat pizza and drink wine.": "Wir möchten Pizza essen und Wein trinken.",
    "I have to clean the kitchen and cook dinner.": "Ich muss die Küche putzen und das Abendessen kochen.",
    "I can sing and dance.": "Ich kann singen und tanzen.",
    "He cannot come because he is ill.": "Er kann nicht kommen, weil er krank ist.",
    "I am going to the train station.": "Ich gehe zum Bahnhof.",
    "The train station is not far from here.": "Der Bahnhof ist nicht weit von hier.",
    "How do I get to the airport?": "Wie komme ich zum Flughafen?",
    "The train leaves at eight o'clock.": "Der Zug fährt um acht Uhr ab.",
    "The children are playing in the park.": "Die Kinder spielen im Park.",
    "The boys play football and the girls read.": "Die Jungen spielen Fußball und die Mädchen lesen.",
    "My brother and my sister live in Hamburg.": "Mein Bruder und meine Schwester wohnen in Hamburg.",
    "She is my best friend and I love her.": "Sie ist meine beste Freundin und ich liebe sie.",
    "He writes a letter to his father.": "Er schreibt seinem Vater einen Brief.",
    "She wrote me a long letter.": "Sie schrieb mir einen langen Brief.",
    "I would like a coffee, please.": "Ich hätte gern einen Kaffee, bitte.",
    "Could you please open the window?": "Könnten Sie bitte das Fenster öffnen?",
    "How much does the ticket cost?": "Wie viel kostet die Fahrkarte?",
    "The white house is bigger than the red house.": "Das weiße Haus ist größer als das rote Haus.",
    "The big dog sleeps in front of the door.": "Der große Hund schläft vor der Tür.",
    "A small bird sits in the tree.": "Ein kleiner Vogel sitzt im Baum.",
    "My mother works in a hospital.": "Meine Mutter arbeitet in einem Krankenhaus.",
    "We go to school every day.": "Wir gehen jeden Tag zur Schule.",
    "Today is Monday and tomorrow is Tuesday.": "Heute ist Montag und morgen ist Dienstag.",
    "What is your name?": "Wie heißt du?",
    "My name is Anna and I come from Munich.": "Ich heiße Anna und komme aus München.",
    "I drink a glass of milk in the morning.": "Ich trinke am Morgen ein Glas Milch.",
    "The morning is cold and the evening is warm.": "Der Morgen ist kalt und der Abend ist warm.",
    "Bread and butter, please.": "Brot und Butter, bitte.",
    "Day and night, summer and winter.": "Tag und Nacht, Sommer und Winter.",
}

PLACES = {
    "train station": ("m", "Bahnhof"),
    "airport": ("m", "Flughafen"),
    "supermarket": ("m", "Supermarkt"),
    "beach": ("m", "Strand"),
    "bus stop": ("f", "Bushaltestelle"),
    "bank": ("f", "Bank"),
    "school": ("f", "Schule"),
    "church": ("f", "Kirche"),
    "pharmacy": ("f", "Apotheke"),
    "library": ("f", "Bibliothek"),
    "post office": ("n", "Postamt"),
    "hotel": ("n", "Hotel"),
    "museum": ("n", "Museum"),
    "hospital": ("n", "Krankenhaus"),
    "town hall": ("n", "Rathaus"),
    "restaurant": ("n", "Restaurant"),
}

WAYS = (
    ("How do I get to the {}?", "Wie komme ich {zum} {}?"),
    ("I am going to the {}.", "Ich gehe {zum} {}."),
    ("I am looking for the {}.", "Ich suche {den} {}."),
    ("The {} is on the left.", "{Der} {} ist links."),
    ("Is the {} far from here?", "Ist {der} {} weit von hier?"),
)
"""The way to each of the places."""

FRAMES = (
    ("Where is the {}?", "Wo ist {der} {}?"),
    ("This is my {}.", "Das ist {mein} {}."),
    ("The {} is very old.", "{Der} {} ist sehr alt."),
    ("Is that the {}?", "Ist das {der} {}?"),
    ("I am looking for the {}.", "Ich suche {den} {}."),
    ("We need a {}.", "Wir brauchen {einen} {}."),
    ("I see the {} and the {}.", "Ich sehe {den} {} und {den} {}."),
    ("Do you have a {}?", "Hast du {einen} {}?"),
)
"""Sentences for the dictionary's nouns: their gender shows in what stands before them."""

BEFORE = {
    "m": {"{der}": "der", "{Der}": "Der", "{den}": "den", "{mein}": "mein", "{einen}": "einen", "{zum}": "zum"},
    "f": {"{der}": "die", "{Der}": "Die", "{den}": "die", "{mein}": "meine", "{einen}": "eine", "{zum}": "zur"},
    "n": {"{der}": "das", "{Der}": "Das", "{den}": "das", "{mein}": "mein", "{einen}": "ein", "{zum}": "zum"},
}
