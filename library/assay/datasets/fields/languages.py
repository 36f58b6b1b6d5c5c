"""Names of a dataset's main fields in languages other than English, as column headings."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from assay.datasets.fields.field_names import folded

if TYPE_CHECKING:
    from collections.abc import Mapping

LANGUAGES = (
    "Arabic", "Bengali", "Chinese", "Czech", "Danish", "Dutch", "Finnish", "French", "German", "Greek", "Hebrew",
    "Hindi", "Hungarian", "Indonesian", "Italian", "Japanese", "Korean", "Norwegian", "Persian", "Polish",
    "Portuguese", "Romanian", "Russian", "Spanish", "Swedish", "Thai", "Turkish", "Ukrainian", "Urdu", "Vietnamese",
)  # fmt: skip
"""The supported languages, for the guide."""

_QUESTIONS = (
    "frage, fragestellung, benutzerfrage, pregunta, consulta, pergunta, questão, domanda, quesito, vraag, soru, "
    "вопрос, запрос, питання, запитання, pytanie, zapytanie, otázka, dotaz, fråga, spørgsmål, spørsmål, kysymys, "
    "întrebare, kérdés, ερώτηση, ερώτημα, سؤال, السؤال, الاستفسار, سوال, پرسش, שאלה, 问题, 問題, 提问, 提問, 题目, "
    "題目, 质问, 質問, 問い, 設問, 질문, 문제, 문의, प्रश्न, सवाल, প্রশ্ন, pertanyaan, soalan, câu hỏi, คำถาม"
)
# Words for a right or a recorded answer, like `answer` in English.
_ANSWERS = (
    "antwort, réponse, respuesta, contestación, resposta, risposta, antwoord, cevap, yanıt, ответ, відповідь, "
    "odpowiedź, odpověď, svar, vastaus, răspuns, válasz, απάντηση, إجابة, الإجابة, جواب, الجواب, الرد, پاسخ, תשובה, "
    "答案, 回答, 答复, 答覆, 解答, 答え, 答, 답변, 답, 대답, 응답, उत्तर, जवाब, উত্তর, jawaban, jawapan, câu trả lời, "
    "trả lời, คำตอบ"
)
_REFERENCES = (
    "referenz, referenzantwort, musterantwort, musterlösung, erwartete antwort, richtige antwort, korrekte antwort, "
    "sollantwort, soll antwort, lösung, référence, réponse attendue, réponse correcte, réponse de référence, "
    "bonne réponse, solution attendue, referencia, respuesta esperada, respuesta correcta, respuesta de referencia, "
    "solución, referência, resposta esperada, resposta correta, resposta certa, resposta de referência, gabarito, "
    "riferimento, risposta attesa, risposta corretta, risposta di riferimento, soluzione, referentie, "
    "referentieantwoord, verwacht antwoord, juiste antwoord, correct antwoord, referans, referans cevap, "
    "beklenen cevap, beklenen yanıt, doğru cevap, doğru yanıt, эталон, эталонный ответ, правильный ответ, "
    "верный ответ, ожидаемый ответ, правильна відповідь, очікувана відповідь, еталонна відповідь, "
    "odpowiedź wzorcowa, wzorcowa odpowiedź, oczekiwana odpowiedź, poprawna odpowiedź, prawidłowa odpowiedź, "
    "správná odpověď, očekávaná odpověď, vzorová odpověď, rätt svar, förväntat svar, korrekt svar, forventet svar, "
    "riktig svar, rigtigt svar, oikea vastaus, odotettu vastaus, răspuns corect, răspuns așteptat, helyes válasz, "
    "elvárt válasz, σωστή απάντηση, αναμενόμενη απάντηση, المرجع, الإجابة الصحيحة, الإجابة المتوقعة, "
    "الإجابة المرجعية, الإجابة النموذجية, الجواب الصحيح, پاسخ صحیح, پاسخ درست, جواب صحیح, תשובה נכונה, תשובה צפויה, "
    "标准答案, 標準答案, 参考答案, 參考答案, 正确答案, 正確答案, 预期答案, 預期答案, 期望答案, 参考回答, 正解, 正答, "
    "模範解答, 模範回答, 期待される回答, 期待回答, 参照回答, 정답, 모범답안, 모범 답안, 기대 답변, 예상 답변, "
    "참조 답변, 기준 답변, सही उत्तर, सही जवाब, अपेक्षित उत्तर, संदर्भ उत्तर, সঠিক উত্তর, jawaban benar, "
    "jawaban yang benar, jawaban yang diharapkan, kunci jawaban, đáp án, câu trả lời đúng, "
    "câu trả lời mong đợi, คำตอบที่ถูกต้อง, เฉลย"
)
_CATEGORIES = (
    "kategorie, rubrik, themengebiet, catégorie, categoría, categoria, categorie, kategori, kategoria, категория, "
    "категорія, kategória, kategoria, luokka, κατηγορία, الفئة, فئة, التصنيف, تصنيف, دسته, دسته بندی, קטגוריה, 类别, "
    "類別, 分类, 分類, カテゴリ, カテゴリー, 카테고리, 분류, 범주, श्रेणी, বিভাগ, danh mục, thể loại, หมวดหมู่"
)
_IDS = (
    "nr, lfd nr, laufende nummer, kennung, identifiant, identificador, identificativo, kimlik, идентификатор, "
    "ідентифікатор, identyfikator, identifikátor, tunniste, azonosító, αναγνωριστικό, المعرف, معرف, شناسه, מזהה, "
    "编号, 編號, 序号, 番号, 번호, 아이디, क्रमांक, आईडी"
)


@cache
def foreign_names() -> Mapping[str, tuple[str, ...]]:
    """Return the folded names by canonical field; words with the meaning of `answer` are under `answer`."""
    listed = {
        "input": _QUESTIONS,
        "answer": _ANSWERS,
        "references": _REFERENCES,
        "category": _CATEGORIES,
        "id": _IDS,
    }
    return {name: tuple(dict.fromkeys(map(folded, words.split(", ")))) for name, words in listed.items()}
