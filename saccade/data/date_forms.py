"""How dates are written in each language: the forms, and the sentences that carry them. Data only.

A form is text with fields in braces:

    d 5   dd 05   o 5th (the language's ordinal)          A Monday   a Mon   W the weekday as inflected in running text
    M 3   MM 03   B March (as used beside a day)          L March (standing alone: nominative where that differs)
    y 1998   yy 98                                        b Mar. or Mar, as the language has it   n Mar, never a dot

`plain` forms fit anywhere, also after the preposition or article a carrier puts before `{date}`. `label` forms stand on
their own or in `{label}`, where nothing governs them. `{number}` and `{time}` in a carrier are distractors: three
digits or a clock time, never a date, and always a word away from it. No word of a carrier or form may be a month's name
in any of the languages: "pro" is December in Czech, and the German "Sie" would be August in Polish.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Language:
    """One language's ways with dates; the names of months and weekdays themselves come from CLDR."""

    code: str
    plain: tuple[str, ...]
    label: tuple[str, ...]
    numeric: tuple[str, ...]
    carriers: tuple[str, ...]
    dotted: bool = False
    """A shortened month may take a dot even where CLDR writes none."""


# The year stands first: month then day, whatever the separator. ISO itself twice: it is the commonest of them.
YEAR_FIRST = (
    *("{y}-{MM}-{dd}", "{y}-{MM}-{dd}", "{y}/{MM}/{dd}", "{y}.{MM}.{dd}", "{y} {MM} {dd}", "{y}{MM}{dd}"),
    *("{y}-{M}-{d}", "{y}/{M}/{d}"),
)

_DOTS = ("{dd}.{MM}.{y}", "{d}.{M}.{y}", "{dd}.{MM}.{yy}")
_SLASHES = ("{dd}/{MM}/{y}", "{d}/{M}/{y}", "{dd}/{MM}/{yy}")

_ENGLISH = (
    "The meeting on {date} was moved.",
    "Your appointment is on {date} at {time}.",
    "The invoice for {number} euros is due on {date}.",
    "Please come to room {number} on {date}.",
    "She was born on {date} in a small village.",
    "Date of the exam: {label}, hall {number}.",
    "{label}: the library stays closed.",
    "We saw each other again ({label}) and talked for hours.",
    "As agreed with the office, the documents for case {number} must be on our desk by {date} at the latest.",
)

LANGUAGES = (
    Language(
        "en",
        plain=(
            *("{B} {d}, {y}", "{B} {d} {y}", "{b} {d}, {y}", "{B} {o}, {y}", "{B} {o} {y}", "{n} {o}, {y}"),
            *("the {o} of {B} {y}", "the {o} of {B}, {y}", "{A}, {B} {d}, {y}", "{A}, {B} {o}, {y}"),
            *("{B} {d}, '{yy}", "{b} {d} '{yy}", "{dd}-{n}-{y}"),
        ),
        label=(
            *("{A} {B} {d} {y}", "{a}, {b} {d}, {y}", "{a} {n} {d} {y}", "{A} the {o} of {B}, {y}"),
            *("{y} {B} {d}", "{y}, {B} {o}", "{y}-{n}-{dd}", "{a} {MM}/{dd}/{y}"),
        ),
        numeric=("{M}/{d}/{y}", "{MM}/{dd}/{y}", "{MM}/{dd}/{yy}", "{M}/{d}/{yy}", "{MM}-{dd}-{y}", "{M}-{d}-{y}"),
        carriers=_ENGLISH,
        dotted=True,
    ),
    Language(
        "en-GB",
        plain=(
            *("{d} {B} {y}", "{o} {B} {y}", "{o} of {B} {y}", "the {o} of {B} {y}", "{d} {b} {y}", "{dd} {n} {y}"),
            *("{A}, {d} {B} {y}", "{A} {d} {B} {y}", "{A} {o} {B} {y}", "{d} {B} ’{yy}", "{d} {n} {yy}"),
        ),
        label=(
            *("{a} {d} {b} {y}", "{a}, {o} {B} {y}", "{A} the {o} of {B} {y}", "{dd}-{n}-{yy}", "{d}/{n}/{y}"),
            *("{A}, {dd}/{MM}/{y}", "{y} {n} {dd}"),
        ),
        numeric=(*_SLASHES, *_DOTS, "{dd}-{MM}-{y}", "{d}-{M}-{y}", "{dd} {MM} {y}"),
        carriers=_ENGLISH,
    ),
    Language(
        "de",
        plain=(
            *("{d}. {B} {y}", "{dd}. {B} {y}", "{d}. {b} {y}", "{A}, {d}. {B} {y}", "{A}, den {d}. {B} {y}"),
            "{d}. {B} '{yy}",
        ),
        label=(
            *("den {d}. {B} {y}", "{a}, {d}. {b} {y}", "{a} {d}. {n} {y}", "{A}, {dd}.{MM}.{y}", "{a} {d}.{M}.{yy}"),
            *("{A}, {d}.{M}.{y}", "{d}.{n}.{y}"),
        ),
        numeric=(*_DOTS, "{d}. {M}. {y}", "{d}.{M}.{yy}", "{dd}/{MM}/{y}", "{dd}-{MM}-{y}", "{dd} {MM} {y}"),
        carriers=(
            "Die Sitzung am {date} wurde verschoben.",
            "Ihr Termin ist am {date} um {time} Uhr.",
            "Die Rechnung über {number} Euro ist am {date} fällig.",
            "Die Gruppe trifft sich am {date} in Raum {number}.",
            "Er wurde am {date} in einem kleinen Dorf geboren.",
            "Datum der Prüfung: {label}, Saal {number}.",
            "{label}: Die Bibliothek bleibt geschlossen.",
            "Wir trafen uns wieder ({label}) und redeten lange.",
            "Wie vereinbart müssen die Unterlagen zum Fall {number} spätestens am {date} bei uns im Büro vorliegen.",
        ),
    ),
    Language(
        "fr",
        plain=(
            *("{o} {B} {y}", "{d} {B} {y}", "{dd} {B} {y}", "{o} {b} {y}", "{A} {o} {B} {y}", "{d}-{n}-{y}"),
            "{o} {B} {yy}",
        ),
        label=("le {o} {B} {y}", "{A}, {o} {B} {y}", "le {A} {o} {B} {y}", "{a} {o} {b} {y}", "{A} {dd}/{MM}/{y}"),
        numeric=(*_SLASHES, "{dd}.{MM}.{y}", "{dd}-{MM}-{y}", "{dd} {MM} {y}"),
        carriers=(
            "La réunion du {date} a été reportée.",
            "Votre rendez-vous est fixé au {date} à {time}.",
            "La facture de {number} euros est à régler avant le {date}.",
            "Merci de venir en salle {number} le {date}.",
            "Elle est née le {date} dans un petit village.",
            "Date de l'examen : {label}, salle {number}.",
            "{label} : la bibliothèque reste fermée.",
            "Nous nous sommes revus ({label}) et avons parlé longtemps.",
            "Comme convenu, les documents du dossier {number} doivent nous parvenir au plus tard le {date} au bureau.",
        ),
    ),
    Language(
        "es",
        plain=(
            *("{d} de {B} de {y}", "{o} de {B} de {y}", "{dd} de {B} de {y}", "{d} {b} {y}"),
            *("{d} de {b} de {y}", "{A}, {d} de {B} de {y}", "{A} {d} de {B} de {y}", "{dd}-{n}-{y}"),
        ),
        label=("{a}, {d} {b} {y}", "{a} {d} {n} {yy}", "{A} {dd}/{MM}/{y}", "el {o} de {B} de {y}", "{B} {d}, {y}"),
        numeric=(*_SLASHES, "{d}.{M}.{y}", "{dd}-{MM}-{y}", "{d}-{M}-{y}", "{dd} {MM} {y}"),
        carriers=(
            "La reunión del {date} se ha aplazado.",
            "Su cita es el {date} a las {time}.",
            "La factura de {number} euros vence el {date}.",
            "Venga a la sala {number} el {date}, por favor.",
            "Nació el {date} en un pueblo pequeño.",
            "Fecha del examen: {label}, aula {number}.",
            "{label}: la biblioteca permanece cerrada.",
            "Nos vimos de nuevo ({label}) y hablamos mucho.",
            "Según lo acordado, los documentos del expediente {number} deben llegar a la oficina antes del {date}.",
        ),
        dotted=True,
    ),
    Language(
        "it",
        plain=("{d} {B} {y}", "{o} {B} {y}", "{dd} {B} {y}", "{d} {b} {y}", "{d}-{n}-{y}", "{d} {B} '{yy}"),
        label=(
            *("{A} {o} {B} {y}", "{A}, {d} {B} {y}", "{a} {d} {b} {y}", "{a}, {d} {n} {y}", "{A} {dd}/{MM}/{y}"),
            "{d} {n} {yy}",
        ),
        numeric=(*_SLASHES, *_DOTS, "{dd}-{MM}-{y}", "{dd} {MM} {y}"),
        carriers=(  # "il giorno", "in data": the bare article would have to change before 8 and 11
            "La riunione in data {date} è stata rinviata.",
            "Il suo appuntamento è fissato per il giorno {date} alle {time}.",
            "La fattura di {number} euro scade in data {date}.",
            "Si presenti nell'aula {number} il giorno {date}.",
            "È nata il giorno {date} in un piccolo paese.",
            "Data dell'esame: {label}, aula {number}.",
            "{label}: la biblioteca resta chiusa.",
            "Ci siamo rivisti ({label}) e abbiamo parlato a lungo.",
            "Come d'accordo, i documenti della pratica {number} devono arrivare in ufficio entro il giorno {date}.",
        ),
    ),
    Language(
        "pt",
        plain=(
            *("{d} de {B} de {y}", "{o} de {B} de {y}", "{dd} de {B} de {y}", "{d} de {b} de {y}", "{d} {n} {y}"),
            "{d}/{n}/{y}",
        ),
        label=(
            *("{A}, {o} de {B} de {y}", "{A}, {d} de {B} de {y}", "{a}, {d} de {b} de {y}", "{A}, {dd}/{MM}/{y}"),
            *("{dd}-{n}-{y}", "{d}/{n}/{yy}"),
        ),
        numeric=(*_SLASHES, "{dd}.{MM}.{y}", "{dd}-{MM}-{y}", "{dd} {MM} {y}"),
        carriers=(
            "A reunião de {date} foi adiada.",
            "A sua consulta é no dia {date} às {time}.",
            "A fatura de {number} euros vence em {date}.",
            "Venha à sala {number} no dia {date}, por favor.",
            "Ela nasceu em {date} numa pequena aldeia.",
            "Data do exame: {label}, sala {number}.",
            "{label}: a biblioteca fica fechada.",
            "Nós nos vimos de novo ({label}) e conversamos muito.",
            "Conforme combinado, os documentos do processo {number} devem chegar ao escritório até o dia {date}.",
        ),
    ),
    Language(
        "nl",
        plain=("{d} {B} {y}", "{dd} {B} {y}", "{d} {b} {y}", "{A} {d} {B} {y}", "{d} {B} '{yy}", "{d}-{n}-{y}"),
        label=("{A}, {d} {B} {y}", "{a} {d} {b} {y}", "de {o} {B} {y}", "{A} {dd}-{MM}-{y}", "{d} {n} {yy}"),
        numeric=("{dd}-{MM}-{y}", "{d}-{M}-{y}", "{dd}/{MM}/{y}", *_DOTS, "{dd} {MM} {y}"),
        carriers=(
            "De vergadering van {date} is verplaatst.",
            "Uw afspraak is op {date} om {time} uur.",
            "De factuur van {number} euro moet op {date} betaald zijn.",
            "Kom op {date} naar kamer {number}.",
            "Zij werd op {date} in een klein dorp geboren.",
            "Datum van het examen: {label}, zaal {number}.",
            "{label}: de bibliotheek blijft gesloten.",
            "Wij zagen elkaar terug ({label}) en praatten lang.",
            "Zoals afgesproken moeten de stukken van dossier {number} uiterlijk op {date} bij ons op kantoor liggen.",
        ),
        dotted=True,
    ),
    Language(
        "pl",
        plain=("{d} {B} {y}", "{d} {B} {y} r.", "{d} {B} {y} roku", "{dd} {B} {y} r.", "{d} {n} {y}"),
        label=(
            *("{A}, {d} {B} {y}", "{A}, {d} {B} {y} r.", "{a}, {d} {B} {y} r.", "{a} {d} {n} {y}", "{d} {L} {y}"),
            *("{L} {d}, {y}", "{dd}-{n}-{y}", "{A}, {dd}.{MM}.{y}"),
        ),
        numeric=(*_DOTS, "{d}.{MM}.{y}", "{dd}.{MM}.{y} r.", "{dd}-{MM}-{y}", "{dd}/{MM}/{y}"),
        carriers=(
            "Spotkanie z dnia {date} zostało przełożone.",
            "Wizyta odbędzie się {date} o godzinie {time}.",
            "Rachunek na {number} złotych jest płatny do dnia {date}.",
            "Proszę przyjść {date} do pokoju {number}.",
            "Urodziła się {date} w małej wsi.",
            "Data egzaminu: {label}, sala {number}.",
            "{label}: biblioteka będzie nieczynna.",
            "Spotkaliśmy się znowu ({label}) i długo rozmawialiśmy.",
            "Zgodnie z umową dokumenty do sprawy {number} muszą trafić do naszego biura najpóźniej {date}.",
        ),
    ),
    Language(
        "cs",
        plain=("{d}. {B} {y}", "{d}. {B} {y}", "{dd}. {B} {y}"),
        label=(
            *("{A} {d}. {B} {y}", "{A}, {d}. {B} {y}", "{a} {d}. {B} {y}", "{A} {d}. {M}. {y}", "{a} {d}.{M}.{y}"),
            *("{d}. {n} {y}", "{d}. {L} {y}", "{dd}-{n}-{y}"),
        ),
        numeric=("{d}. {M}. {y}", "{d}. {M}. {y}", *_DOTS, "{dd}. {MM}. {y}", "{dd}/{MM}/{y}", "{dd}-{MM}-{y}"),
        carriers=(
            "Schůze dne {date} byla přesunuta.",
            "Vaše schůzka je {date} v {time}.",
            "Faktura na {number} korun je splatná dne {date}.",
            "Přijďte prosím dne {date} do místnosti {number}.",
            "Narodila se {date} v malé vesnici.",
            "Datum zkoušky: {label}, sál {number}.",
            "{label}: knihovna je zavřená.",
            "Znovu jsme se viděli ({label}) a dlouho si povídali.",
            "Podle dohody musí být podklady k případu {number} v naší kanceláři nejpozději dne {date} dopoledne.",
        ),
    ),
    Language(
        "sv",
        plain=("{d} {B} {y}", "{o} {B} {y}", "{d} {b} {y}", "{dd} {B} {y}"),
        label=(
            *("den {d} {B} {y}", "den {o} {B} {y}", "{A} {d} {B} {y}", "{A}en den {d} {B} {y}", "{a} {d} {b} {y}"),
            *("{A} {d}/{M} {y}", "{dd}-{n}-{y}"),
        ),
        numeric=("{d}/{M} {y}", "{d}/{M} {y}", "{d}.{M}.{y}", "{dd}.{MM}.{y}", "{dd}/{MM}/{y}", "{dd}-{MM}-{y}"),
        carriers=(
            "Sammanträdet den {date} flyttades.",
            "Din tid är den {date} klockan {time}.",
            "Fakturan på {number} kronor ska betalas den {date}.",
            "Kom till rum {number} den {date}.",
            "Hon föddes den {date} i en liten by.",
            "Datum för provet: {label}, sal {number}.",
            "{label}: biblioteket är stängt.",
            "Vi sågs igen ({label}) och pratade länge.",
            "Enligt överenskommelse ska handlingarna i ärende {number} finnas på vårt kontor senast den {date}.",
        ),
    ),
    Language(
        "da",
        plain=("{d}. {B} {y}", "{dd}. {B} {y}", "{d}. {b} {y}"),
        label=(
            *("den {d}. {B} {y}", "{A} den {d}. {B} {y}", "{A} d. {d}. {B} {y}", "{a} {d}. {b} {y}", "{d}/{M} {y}"),
            *("{A} {d}. {B} {y}", "{A} {d}/{M} {y}"),
        ),
        numeric=(*_DOTS, "{dd}-{MM}-{y}", "{d}-{M}-{y}", "{d}/{M}/{y}", "{dd}/{MM}/{y}"),
        carriers=(
            "Mødet den {date} er flyttet.",
            "Din tid er den {date} klokken {time}.",
            "Regningen på {number} kroner skal betales den {date}.",
            "Kom til lokale {number} den {date}.",
            "Hun blev født den {date} i en lille landsby.",
            "Dato for prøven: {label}, sal {number}.",
            "{label}: biblioteket er lukket.",
            "Vi så hinanden igen ({label}) og talte længe.",
            "Som aftalt skal papirerne i sag {number} ligge på vores kontor senest den {date} om formiddagen.",
        ),
    ),
    Language(
        "fi",
        plain=("{d}. {B} {y}",),
        label=(
            *("{A} {d}. {B} {y}", "{W} {d}. {B} {y}", "{A}, {d}. {B} {y}", "{a} {d}. {B} {y}", "{a} {d}.{M}.{y}"),
            *("{A} {d}.{M}.{y}", "{d}. {n} {y}", "{d}. {L} {y}"),
        ),
        numeric=("{d}.{M}.{y}", *_DOTS, "{d}. {M}. {y}", "{dd}/{MM}/{y}"),
        carriers=(
            "Kokous pidetään {date} huoneessa {number}.",
            "Aikanne on {date} kello {time}.",
            "{number} euron lasku on maksettava {date} mennessä.",
            "Tulkaa {date} huoneeseen {number}.",
            "Hän syntyi {date} pienessä kylässä.",
            "Kokeen päivämäärä: {label}, sali {number}.",
            "{label}: kirjasto on suljettu.",
            "Tapasimme taas ({label}) ja puhuimme pitkään.",
            "Kuten sovittiin, asian {number} paperien on oltava toimistossamme viimeistään {date} ennen puoltapäivää.",
        ),
    ),
    Language(
        "tr",
        plain=("{d} {B} {y}", "{dd} {B} {y}", "{d} {n} {y}"),
        label=(
            *("{d} {B} {y} {A}", "{d} {B} {y}, {A}", "{A}, {d} {B} {y}", "{d} {n} {y} {a}", "{dd}.{MM}.{y} {A}"),
            *("{dd}-{n}-{y}", "{dd}/{MM}/{y} {A}"),
        ),
        numeric=(*_DOTS, "{d}.{MM}.{y}", "{dd}/{MM}/{y}", "{dd}-{MM}-{y}", "{dd} {MM} {y}"),
        carriers=(
            "{date} tarihli toplantı ertelendi.",
            "Randevunuz {date} günü saat {time} için ayrıldı.",
            "{number} liralık fatura {date} tarihine kadar ödenmeli.",
            "Lütfen {date} tarihinde {number} numaralı odaya gelin.",
            "O, {date} tarihinde küçük bir köyde doğdu.",
            "Sınav tarihi: {label}, salon {number}.",
            "{label}: kütüphane kapalı olacak.",
            "Yeniden görüştük ({label}) ve uzun uzun konuştuk.",
            "Anlaştığımız gibi {number} numaralı dosyanın belgeleri en geç {date} tarihinde büromuzda olmalı.",
        ),
    ),
    Language(
        "ru",
        plain=("{d} {B} {y} г.", "{d} {B} {y} года", "{d} {B} {y}", "{o} {B} {y} года", "{dd} {B} {y}"),
        label=(
            *("{A}, {d} {B} {y} г.", "{A}, {d} {B} {y}", "{a}, {d} {b} {y} г.", "{d} {b} {y}", "{dd} {L} {y}"),
            *("{L} {d}, {y}", "{dd}-{n}-{y}", "{A}, {dd}.{MM}.{y}", "{a} {dd}.{MM}.{yy}"),
        ),
        numeric=(*_DOTS, "{dd}.{MM}.{y} г.", "{dd}/{MM}/{y}", "{dd}-{MM}-{y}"),
        carriers=(
            "Встреча {date} была перенесена.",
            "Приём состоится {date} в {time}.",
            "Счёт на {number} рублей нужно оплатить до {date}.",
            "Приходите {date} в кабинет {number}.",
            "Она родилась {date} в маленькой деревне.",
            "Дата экзамена: {label}, зал {number}.",
            "{label}: библиотека закрыта.",
            "Мы снова увиделись ({label}) и долго говорили.",
            "Как договорились, документы по делу {number} должны быть у нас в конторе не позднее {date} до обеда.",
        ),
    ),
    Language(
        "el",
        plain=("{d} {B} {y}", "{dd} {B} {y}", "{d} {b} {y}"),
        label=(
            *("{A} {d} {B} {y}", "{A}, {d} {B} {y}", "{o} {B} {y}", "{A}, {o} {B} {y}", "{a} {d} {b} {y}"),
            *("{d} {L} {y}", "{A} {dd}/{MM}/{y}", "{dd}-{n}-{y}"),
        ),
        numeric=(*_SLASHES, "{d}.{M}.{y}", "{dd}-{MM}-{y}", "{d}-{M}-{y}"),
        carriers=(
            "Η συνάντηση στις {date} αναβλήθηκε.",
            "Το ραντεβού σας είναι στις {date}, ώρα {time}.",
            "Ο λογαριασμός των {number} ευρώ λήγει στις {date}.",
            "Ελάτε στην αίθουσα {number} στις {date}.",
            "Γεννήθηκε στις {date} σε ένα μικρό χωριό.",
            "Ημερομηνία εξέτασης: {label}, αίθουσα {number}.",
            "{label}: η βιβλιοθήκη είναι κλειστή.",
            "Ξαναβρεθήκαμε ({label}) και μιλήσαμε πολύ.",
            "Όπως συμφωνήσαμε, τα έγγραφα της υπόθεσης {number} πρέπει να φτάσουν στο γραφείο μας στις {date}.",
        ),
        dotted=True,
    ),
)


def ordinal_suffix(code: str, day: int) -> str:
    """What the language hangs on a day's number to make an ordinal of it; "" where it does not."""
    match code:
        case "en" | "en-GB":
            return "th" if day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
        case "fr":
            return "er" if day == 1 else ""
        case "es" | "it" | "pt":
            return "º" if day == 1 else ""
        case "nl":
            return "e"
        case "sv":
            return ":a" if day % 10 in (1, 2) and day not in (11, 12) else ":e"
        case "ru":
            return "-го"
        case "el":
            return "η"
        case _:
            return ""
