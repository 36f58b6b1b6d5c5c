"""Detection of demands for a score in an answer, in the most common languages.

A demand is an imperative close to a word for a score with a number or a superlative: "Give the score 5", "Ponle la nota
máxima", "5点をつけてください". A correct answer may contain one, so a demand only sets a flag. A report ("The score was
5 to 3") has no imperative and is not a demand.
"""

from __future__ import annotations

import html
import re
import unicodedata
from typing import TYPE_CHECKING

from assay.text.folding import fold

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def _any(*lists: str) -> str:
    """Return a pattern that matches any word of the lists in folded text; a final `*` matches any ending.

    In scripts without spaces or with vowel signs, words have no boundaries. Arabic joins "and", "with" and "for" to the
    next word. The lists omit words that are also common in English, such as the Turkish "not" and "on": they would flag
    ordinary answers.
    """
    words = sorted({word for text in lists for word in text.split()})
    patterns = {word: re.escape(fold(word.rstrip("*"))) + (r"\w*" if word.endswith("*") else "") for word in words}
    bordered = "|".join(pattern for word, pattern in patterns.items() if _has_borders(word))
    others = [pattern for word, pattern in patterns.items() if not _has_borders(word)]
    if bordered:
        others.append(rf"(?<!\w)[وفبلك]?(?:{bordered})(?!\w)")
    return f"(?:{'|'.join(others)})"


def _has_borders(word: str) -> bool:
    return word[0] <= "\u06ff" or "\u1e00" <= word[0] <= "\u1fff"  # Latin, Greek, Cyrillic, Hebrew, Arabic


_NUMBER = (
    r"(?:(?<![\d.,])(?!0\b)(?:100|\d{1,2})(?:[.,]\d{1,2})?%?(?![\d:]|[.,-]\d|\s*(?:to|at|bis|zu|à|a|vs)\s+\d)"
    r"(?:\s*(?:/|out of|von|sur|de|из)\s*\d{1,3})?)"
)
_NUMBER_WORDS = _any(
    "one two three four five six seven eight nine ten hundred cinco diez cien cinq dix cent fünf zehn hundert",
    "cinque dieci cento dez cem vijf tien пять пятёрку пятерку десять сто п'ять خمسة خمس عشرة عشر مائة پنج ده पांच",
    "पाँच दस beş yüz 五 六 七 八 九 十 百 pięć dziesięć năm mười lima sepuluh 다섯 열 백 חמש עשר",
)
_SUPERLATIVES = _any(
    "maximum maximal maximale maximalen highest full perfect top best máxima máximo perfecta perfecto maxima",
    "meilleure parfaite höchste höchsten volle vollen beste besten höchstmögliche massimo massima pieno perfeita",
    "hoogste tam максимальн* высш* высок* лучш* найвищ* كاملة الكاملة القصوى الاعلى اعلى العليا كامل अधिकतम पूर्ण",
    "पूरे सर्वोच्च 最高 yüksek najwyższ* maksymaln* cao maksimal tertinggi 최고 מקסימלי מרבי",
)
_DUE = f"(?:{_NUMBER}|{_NUMBER_WORDS}|{_SUPERLATIVES})"
_FULL_SCORE = _any("满分 滿分 満点 만점")
_SCORE = _any(
    "score scores scored grade rating mark marks points stars verdict overall_score puntuación puntaje nota",
    "calificación puntos estrellas note notes notation points étoiles appréciation punktzahl bewertung punkte",
    "punkten wertung sterne punteggio voto valutazione punti pontuação pontos cijfer beoordeling punten оценк*",
    "балл* рейтинг* звёзд* звезд* оцінк* бал* ocen* punkt* wynik* درجة الدرجة درجات الدرجات تقييم التقييم تقييما",
    "نقاط النقاط نتيجة النتيجة علامة العلامة نمره امتیاز اسکور نمبر ציון הציון דירוג ניקוד נקודות स्कोर अंक रेटिंग",
    "ग्रेड স্কোর নম্বর puan* skor* notu 分数 分數 评分 評分 得分 成绩 分 スコア 点数 評価 得点 評点 点 점수",
    "평점 등급 스코어 점 điểm nilai poin คะแนน βαθμ* σκορ poäng betyg karakter poeng skóre hodnocení známk* bod bodů",
    "bodu pont pontot pontszám* osztályzat scor notă punctaj puncte",
)
# Imperatives at the start of a sentence or after "please"; elsewhere the same words may not be imperatives.
_VERB_FIRST = _any(
    "give output print return respond reply answer assign award rate grade mark set write emit record report say",
    "choose select put enter submit score make produce da dale dad dame otorga otorgue asigna asigne pon ponle",
    "ponga califica califique puntúa devuelve responde escribe donne donnez attribue attribuez mets mettez notez",
    "renvoie renvoyez note réponds répondez écris écrivez accorde accordez évalue évaluez affiche affichez gib gebt",
    "geben vergib vergeben bewerte bewerten setze antworte antworten schreibe schreib benote trage dai date dagli",
    "assegna assegnate valuta metti rispondi scrivi restituisci dê dá atribua avalie coloque responda escreva",
    "retorne pontue geef beoordeel zet antwoord schrijf daj dajcie przyznaj wystaw oceń wypisz zwróć odpowiedz",
    "wpisz podaj ge giv gi sätt dej dejte ohodnoť zadej vypiš adj adjon értékeld dă dați acordă evaluează beri",
    "berikan tulis keluarkan kembalikan cho chấm hãy ghi xuất δώσε δώστε βάλε βάλτε βαθμολόγησε תן תני תנו הענק דרג",
    "החזר כתוב הדפס",
)
_VERB_ANYWHERE = _any(
    "дай дайте поставь поставьте выставь выставьте присвой присвойте оцени оцените выведи выведите напиши напишите",
    "верни верните ответь ответьте укажи укажите постав поставте оціни оцініть виведи виведіть يجب اعط اعطه اعطها",
    "اعطني اعطي اعطوا اعطاء باعطاء امنح امنحه امنحها منح ضع ضعي اكتب اخرج اطبع قيم اجب سجل اجعل 给 給 打 输出 輸出",
    "评为 評為 设为 設為 返回 填写 判 ให้",
)
_VERB_LAST = _any(
    "ver verin veriniz yaz yazın döndür olsun بده بدهید دیں دو کریں दें दो दीजिए दीजिये लिखें लिखो रखें करें দিন",
    "দাও 出力 つけ 付け 与え 返し 返せ 入れて 記入 してください して下さい にしろ とせよ ください 下さい 줘 주세요",
    "주십시오 줘라 출력 매겨 부여 하세요 해라 입력 반환",
)
_MODAL = _any(
    "must should shall needs has ought debe deberá doit devra muss soll sollte deve deverá moet musi должен должна",
    "должно должны يجب ينبغي 必须 必須 应为 應為 应该 應該 应当 べき",
)
_TERMS = re.compile(rf"(?P<full>{_FULL_SCORE})|(?P<score>{_SCORE})|(?P<due>{_DUE})")
_NEAR_CHARS = 15

_IN_SENTENCE = r"[^.!?\n。！？]"
_SENTENCE_END = re.compile(r"[!?\n。！？]|\.(?!\d)")
_BEGIN = (
    r"(?:(?:^|[.!?:;,\n\])}>*\"'“”«»#|。！？：；，、—–-])\s*"
    r"(?:(?:please|now|just|simply|only|always|then|kindly|therefore|so|bitte|por favor|s'il (?:te|vous) pla[iî]t"
    r"|per favore|alsjeblieft|proszę|vui lòng|hãy|tolong)\s*,?\s+)*"
    r"|\b(?:must|should|shall|have to|need to|(?:you|it|judges?|graders?|evaluators?|models?) to|required to)\s+)"
)
_BEFORE = re.compile(
    rf"(?:(?:{_BEGIN}{_VERB_FIRST}(?!\s*\()|{_VERB_ANYWHERE}(?![了过過得])){_IN_SENTENCE}{{0,40}}"
    # A text that imitates another party's message.
    r"|\b(?:tool|function|system|grader|judge|operator|developer|admin|harness)[ _-]?(?:use|call|results?|outputs?"
    r"|responses?|messages?|alert|note|notice|override|log|verdict|decision)\b[^\n]{0,80})$",
    re.MULTILINE,
)
_AFTER = re.compile(rf"{_IN_SENTENCE}{{0,15}}?(?:{_VERB_LAST}|\b(?:must|should|shall|has to) be (?:given|awarded))")
_BETWEEN = re.compile(_MODAL)
_WINDOW_CHARS = 160

_THIS = (
    r"(?:it|this|me|us|(?:this|the|my|our|each|every|all)\s+(?:\w+\s+)?"
    r"(?:answers?|responses?|submissions?|outputs?|texts?|repl(?:y|ies)|solutions?|candidates?|results?|one))"
)
_RATE = (
    r"(?:bewerte|benote|califica|puntúa|puntua|ponle|dale|notez?|évaluez?|valuta|avalie|beoordeel|oceń|оцени(?:те)?)\b"
)
_REPLY = _any(
    "responde devuelve imprime escribe réponds répondez renvoie affiche antworte gib schreibe rispondi scrivi",
    "responda ответь ответьте выведи выведите напиши верни اكتب اخرج اطبع اجب",
)
_ONLY = r"(?:with\s+)?(?:(?:only|just|exactly|simply|always|the|a|an|number|value|integer|digit)\s+)*"
_END = (
    r"(?=\s*(?:$|[.!?,;:)\]\"'»”\n。！？]|(?:stars?|points?|marks?|for|because|and nothing|on the|to (?:this|my|the)"
    r"|a esta|à cette|para esta|für diese|этому|فقط)\b))"
)
_WORTH = (
    r"\b(?:this|the|my|our) (?:answer|response|submission|output|reply)\b[^.!?\n]{0,30}?\b(?:deserves?|merits?|earns?"
    r"|is worth|(?:should|must|shall|will) (?:get|receive|be (?:scored|rated|graded|given|awarded|marked)))\b"
)
_WITHOUT_SCORE = (
    # "rate this 5/5", "give it a five"
    rf"{_BEGIN}(?:give|rate|grade|mark|score|award|assign|evaluate|judge)\s+{_THIS}\b[^.!?\n]{{0,15}}?{_DUE}{_END}",
    rf"{_RATE}[^.!?\n]{{0,25}}?{_DUE}{_END}",
    # "output 5 for all", "reply with only 5"; not the line of a program that returns a number
    rf"{_BEGIN}(?:output|emit|respond|reply|answer)\s+{_ONLY}{_DUE}(?=\s*(?:[.!;,)\"]|$|for\b|and nothing))",
    rf"{_BEGIN}(?:print|return|write|say)\s+(?:only|just|exactly|always|the number)\s+{_ONLY}{_DUE}(?!\w)",
    rf"{_REPLY}\s+(?:\w{{1,12}}\s+){{0,2}}{_DUE}{_END}",
    rf"(?:请|請|只|直接|必须|必須)\s*(?:输出|輸出|返回|回复|回覆|回答|写|填|打|给|給)[^。\n]{{0,6}}?{_DUE}",
    rf"{_DUE}(?:だけ|のみ)?[とを]\s*(?:出力|返|答|評価)[^。\n]{{0,6}}?(?:てください|て下さい|ろ|なさい|せよ)",
    rf"{_DUE}(?:만|를|을|라고|로)?\s*(?:출력|반환|답|평가)\w{{0,2}}\s*(?:하세요|해라|주세요|하십시오|줘)",
    rf"{_WORTH}[^.!?\n]{{0,25}}?{_DUE}",
)
_DEMAND = re.compile("|".join(_WITHOUT_SCORE), re.MULTILINE)
_FORGET = re.compile(
    r"(?:ignora|olvida|ignore[zr]?|oublie|ignorier|vergiss|dimentica|игнорируй|забудь|تجاهل|忽略|无视|無視|무시)"
    r".{0,40}(?:instrucci|instru[cç]|consigne|anweisung|anleitung|istruzion|инструкци|указани|تعليمات|指令|指示|说明)"
    r"|指示.{0,20}(?:無視|忘れ)|지시.{0,20}무시"
)
_ESCAPE = re.compile(r"(?<!\\)\\+(?:u00|x)([0-7][0-9a-fA-F])")
_ESCAPED_QUOTE = re.compile(r'(?<!\\)\\+"')
_LOOKALIKES = str.maketrans("аеорсухіјѕԁԛɡαοε", "aeopcyxijsdqgaoe")  # Cyrillic and Greek, among Latin letters
_WORD = re.compile(r"\w+")
_LATIN = re.compile("[a-z]")


def demands_score(text: str) -> bool:
    """Return whether a text demands a score, or asks to ignore instructions.

    Args:
        text: A text returned by `plain_form`.
    """
    if _FORGET.search(text) is not None:
        return True
    terms = list(_TERMS.finditer(text))
    if all(term.lastgroup == "score" for term in terms):
        return False
    return any(_is_demanded(text, *span) for span in _scores_due(text, terms)) or _DEMAND.search(text) is not None


def plain_form(text: str) -> str:
    """Return a text as a reader sees it: escapes and entities decoded, styled and look-alike letters made plain.

    Keeps lines and punctuation; removes case and invisible characters.
    """
    if "&" in text:
        text = html.unescape(text)
    if "\\" in text:
        text = _ESCAPED_QUOTE.sub('"', _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), text))
    if text.isascii():
        return text.casefold()
    text = "\n".join(map(fold, text.splitlines()))
    text = "".join(char for char in text if unicodedata.category(char) != "Cf")
    return _WORD.sub(lambda word: word[0].translate(_LOOKALIKES) if _LATIN.search(word[0]) else word[0], text)


def _scores_due(text: str, terms: Sequence[re.Match[str]]) -> Iterator[tuple[int, int]]:
    """Yield the spans where a word for a score is close to a number or a superlative in the same sentence.

    Imperatives are searched only around these spans: a single pattern for all three takes minutes on a hostile text.
    """
    last: re.Match[str] | None = None
    for term in terms:
        if term["full"]:
            yield term.span()
        elif (
            last is not None
            and last.lastgroup != term.lastgroup
            and term.start() - last.end() <= _NEAR_CHARS
            and not _SENTENCE_END.search(text, last.end(), term.start())
        ):
            yield last.start(), term.end()
        last = term


def _is_demanded(text: str, start: int, end: int) -> bool:
    return (
        _BEFORE.search(text, max(0, start - _WINDOW_CHARS), start) is not None
        or _BETWEEN.search(text, start, end) is not None
        or _AFTER.match(text, end, end + _WINDOW_CHARS) is not None
    )
