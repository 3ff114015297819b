"""What a column of a table of persons holds, by its name alone: an id, a free text, a number of many values."""

from __future__ import annotations

import re
import unicodedata

_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_WORDS = re.compile(r"[^\W\d_]+")
_ID = re.compile(
    r"^(id|ident)[_ .-]|(^|[_ .-])(id|nr|no|num|number|nummer|key|uuid|guid)$|^(pid|hid|hhid|ssn|nin|bsn|serial)$|"
    r"[^\W\d_]{3}(nr|nummer)$|^codice[_ .-]?fiscale$|^(dni|nif|cpf|curp|pesel|oib|jmbg|egn|cnp)$|"
    r"(person|pers|household|house|home|record|case|respondent|member|individual|serial|haushalts?|fall)(id|no|num)$",
    re.IGNORECASE,
)
_CAMEL_ID = re.compile(r"[a-z](Id|ID|Nr|No)$")
_NUMBERED = {"num", "numero", "nro", "nr", "no"}  # of a file, an insurance; or of children: these are counted
_REGISTERED = (
    *(
        "afilia",
        "asegur",
        "seguridad",
        "document",
        "expedient",
        "historia",
        "identifica",
        "matric",
        "registr",
        "contrat",
    ),
    *(
        "pacient",
        "client",
        "soci",
        "pasaport",
        "passaport",
        "poliza",
        "cedula",
        "inscri",
        "adherent",
        "dossier",
        "secu",
    ),
    *("fattur", "tesser", "process", "utente"),
)  # how the names of registers and papers begin, in Spanish, Portuguese, Italian and French


def _listed(words: str) -> frozenset[str]:
    return frozenset(map(_plain, words.split()))


def _plain(word: str) -> str:
    """Return a word in lower case and without accents, which are often left out of names of columns."""
    letters = unicodedata.normalize("NFKD", word.lower())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def _words(name: str) -> set[str]:
    return {_plain(word) for word in _WORDS.findall(_CAMEL.sub(" ", unicodedata.normalize("NFC", name)))}


_GROUPED = _listed(
    """
    group grouped class band bracket range category cat code type status level decile quintile
    gruppe klasse kategorie art stufe groep categorie soort groupe catégorie classe tranche grupo clase categoría
    categoria tramo nivel tipo estado niveau typ
    gruppo fascia fasce scaglione livello codice stato grado
    faixa escalao grau codigo
    """
)
_TEXT = _listed(
    """
    name names firstname lastname surname forename address street email mail phone telephone mobile comment comments
    remark remarks note notes text description url website
    vorname nachname familienname adresse strasse straße bemerkung bemerkungen anmerkung anmerkungen kommentar
    kommentare notiz notizen hinweis telefon
    naam voornaam voornamen achternaam familienaam adres straat straatnaam opmerking opmerkingen toelichting notitie
    telefoon omschrijving
    nom noms prenom prénom prenoms prénoms rue commentaire commentaires remarque remarques
    nombre nombres apellido apellidos direccion dirección comentario comentarios observacion observación
    observaciones nota notas calle descripción correo
    nome nomi cognome cognomi indirizzo telefono cellulare commento commenti osservazione osservazioni annotazione
    annotazioni descrizione
    nomes apelido apelidos sobrenome morada endereço rua telefone telemóvel comentários observação observações
    anotação anotações descrição obs
    téléphone courriel observations beschreibung freitext freetext beschrijving tekst
    """
)
_NUMBER = _listed(
    """
    income incomes earnings wage wages salary rent price amount value turnover revenue balance weight height bmi
    latitude longitude lat lon lng date birthdate birthday dob timestamp datetime
    einkommen nettoeinkommen bruttoeinkommen lohn gehalt miete betrag gewicht datum geburtsdatum geburtstag gebdat
    inkomen jaarinkomen loon salaris huur bedrag geboortedatum geboortedag
    revenu revenus salaire loyer montant poids naissance ingreso ingresos renta salario sueldo fecha nacimiento
    alquiler importe precio peso altura valor sueldos salarios
    nascita compleanno reddito redditi stipendio stipendi retribuzione affitto importo prezzo altezza valore fatturato
    nascimento rendimento rendimentos ordenado ordenados renda rendas montante preço
    prix jahreseinkommen haushaltseinkommen monatseinkommen verdienst einkünfte preis preise
    geboorte inkomens maandinkomen lonen salarissen prijs
    """
)
_PLACE = _listed(
    """
    place country region city land ort plaats paese luogo comune provincia país lugar local concelho lieu pays commune
    """
)
_DATE = re.compile(r"^data([_ .-]|$)", re.IGNORECASE)  # Italian and Portuguese for a date


def unfit_reason(name: str) -> str:
    """Return why a column is no attribute by its name, "" where nothing says so; "income group" is one, "income" none.

    The values of a private table are not read for this.
    """
    if _ID.search(name) or _CAMEL_ID.search(name):
        return "an id"
    words = _words(name)
    if words & _NUMBERED and any(word.startswith(_REGISTERED) for word in words):
        return "an id"
    if words & _GROUPED:
        return ""
    if words & _TEXT:
        return "a free text"
    counted = (words & _NUMBER or _DATE.search(name)) and not words & _PLACE
    return "a number or date of many values" if counted else ""


def is_age(name: str) -> bool:
    """Return whether a column holds ages by its name."""
    words = _words(name)
    return bool(words & {"age", "ages", "alter", "leeftijd", "edad", "eta", "idade"}) and not words & _GROUPED
