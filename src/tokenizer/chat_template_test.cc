// Templates: the language against values worked out by hand or from Jinja's documentation, limits, taint.
// Whole templates are compared with reference renderers in oracle_test.cc.
#include "tokenizer/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokenizer/test_support.h"

namespace lariat {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

struct Rendering {
  std::string text;
  Error error;
  std::vector<ByteRange> untrusted;
};

Rendering render(const std::string& source, const std::string& messages = "[]",
                 const std::string& kwargs = "{}", const TemplateLimits& limits = {}) {
  const auto parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return {"", parsed.error(), {}};
  TemplateInputs inputs;
  inputs.kwargs = ordered_json::parse(kwargs);
  inputs.bos_token = "<s>";
  inputs.eos_token = "</s>";
  inputs.now.tm_year = 124;
  inputs.now.tm_mon = 6;
  inputs.now.tm_mday = 26;
  const auto out = parsed->render(ordered_json::parse(messages), inputs, limits);
  if (!out.ok()) return {"", out.error(), {}};
  return {out->text, {}, out->untrusted};
}

void expect(const std::string& source, const std::string& text, const std::string& kwargs = "{}") {
  const Rendering r = render(source, "[]", kwargs);
  EXPECT_EQ(r.error.message, "") << source;
  EXPECT_EQ(r.text, text) << source;
}

TEST(Language, WhiteSpaceControl) {
  expect("a\n  {% if true %}\n b\n  {% endif %}\nc\n", "a\n b\nc");
  expect("a \n {%- if true -%} \n b {% endif %}", "ab ");
  expect("x {# note #}\ny", "x y");
  expect(" {# note #}\ny", "y");
  expect("{{- ' a ' -}}  b", " a b");
  expect("a\n  {{ 1 }}\nb", "a\n  1\nb");
  expect("a\n  {%+ if true %}b{% endif +%}\nc", "a\n  b\nc");
  expect("{% raw %}{{ x }}{% endraw %}!", "{{ x }}!");
  expect("a\r\nb\r\n", "a\nb");
}

TEST(Language, Expressions) {
  expect("{{ 1 + 2 * 3 ** 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }}", "19 3 -4 2 3.5");
  expect("{{ 'a' ~ 1 ~ none ~ true }}", "a1NoneTrue");
  expect("{{ 'x' * 3 }}{{ [1] * 2 }}", "xxx[1, 1]");
  expect("{{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 'b' in 'abc' }} {{ 4 not in [1, 2] }}", "True False True True");
  expect("{{ not x is defined }} {{ x is not defined }}", "True True");
  expect("{{ 'yes' if x else 'no' }}{{ 'z' if false }}", "no");
  expect("{{ none or 'b' }} {{ 'a' and 'c' }}", "b c");
  expect("{{ [1, 2, 3][::-1] }} {{ 'héllo'[1:3] }} {{ 'abc'[-1] }} {{ [1,2,3][5] is defined }}",
         "[3, 2, 1] él c False");
  expect("{{ {'a': 1, 'b': [true, none]} }} {{ ('x',) }} {{ \"it's\" }} {{ [\"it's\"] }}",
         "{'a': 1, 'b': [True, None]} ('x',) it's [\"it's\"]");
  expect("{{ 1e20 }} {{ 0.1 + 0.2 }} {{ 1.0 }} {{ 0.00001 }} {{ 1e15 }}",
         "1e+20 0.30000000000000004 1.0 1e-05 1000000000000000.0");
  expect("{{ 'a\\n\\u00e9\\x41\\'' }}", "a\néA'");
  expect("{{ 'a' 'b' }}{{ {'items': 3}['items'] }}", "ab3");
}

TEST(Language, Statements) {
  expect("{% for x in [1,2,3] %}{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last }}{% endfor %}",
         "1/3,2/3,3/3");
  expect("{% for x in [] %}a{% else %}none{% endfor %}", "none");
  expect("{% for x in [1,2,3,4] if x is odd %}{{ x }}:{{ loop.length }} {% endfor %}", "1:2 3:2 ");
  expect("{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}", "a=1;b=2;");
  expect(
      "{% for x in [1,2,3,4] %}{% if x == 2 %}{% continue %}{% elif x == 4 %}{% break %}{% endif %}{{ x }}{% "
      "endfor %}",
      "13");
  expect("{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{% endfor %}{{ x }}", "1");
  expect("{% set n = namespace(x=1) %}{% for i in [1,2] %}{% set n.x = n.x + i %}{% endfor %}{{ n.x }}", "4");
  expect("{% set a, b = [1, 2] %}{{ a }}{{ b }}{% set c %}<{{ a }}>{% endset %}{{ c|upper }}", "12<1>");
  expect("{% macro m(a, b='d') %}[{{ a }}{{ b }}]{% endmacro %}{{ m(1) }}{{ m(1, b=2) }}", "[1d][12]");
  expect(
      "{% for x in 'ab' %}{{ loop.previtem }}{{ x }}{{ loop.nextitem }}{{ loop.cycle('-', '+') }}{% endfor "
      "%}",
      "ab-ab+");
  expect("{% generation %}g{% endgeneration %}", "g");
  expect(
      "{% for a in range(3) %}{% for b in range(2) %}{{ loop.depth }}{% endfor %}{% endfor %}{{ range(2, 8, "
      "3)|list }}",
      "111111[2, 5]");
  expect("{{ strftime_now('%d %b %Y') }}", "26 Jul 2024");
}

TEST(Language, FiltersTestsMethods) {
  expect("{{ ' a b ' | trim }}|{{ 'xxaxx'.strip('x') }}|{{ '  a'.lstrip() }}|{{ 'a--'.rstrip('-') }}",
         "a b|a|a|a");
  expect(
      "{{ 'a,b,c'.split(',') }} {{ 'a,b,c'.split(',', 1)[-1] }} {{ ' a  b '.split() }} {{ "
      "'a,b,c'.rsplit(',', 1) }}",
      "['a', 'b', 'c'] b,c ['a', 'b'] ['a,b', 'c']");
  expect(
      "{{ 'aXbX'.replace('X', '-') }} {{ 'abc'.find('c') }} {{ 'hello world'|title }} {{ 'hELLO'|capitalize "
      "}}",
      "a-b- 2 Hello World Hello");
  expect("{{ 'ab'.startswith('a') }} {{ 'ab'.endswith(('x', 'b')) }} {{ 'ß'.upper() }}", "True True SS");
  expect("{{ [3,1,2]|sort }} {{ ['b','A']|sort }} {{ {'b':1,'a':2}|dictsort }} {{ [1,1,2]|unique|list }}",
         "[1, 2, 3] ['A', 'b'] [('a', 2), ('b', 1)] [1, 2]");
  expect(
      "{{ [{'a':1},{'a':2}]|map(attribute='a')|list }} {{ ['a']|map('upper')|join }} {{ "
      "[{'r':'x'},{'r':'y'}]|selectattr('r','equalto','y')|list|length }}",
      "[1, 2] A 1");
  expect(
      "{{ [0,1,2]|select|list }} {{ [1,2,3]|reject('odd')|list }} {{ ['a','b']|join(', ') }} {{ [1,2]|first "
      "}}{{ [1,2]|last }}",
      "[1, 2] [2] a, b 12");
  expect(
      "{{ x|default('d') }} {{ ''|default('e', true) }} {{ '7'|int + 1 }} {{ '1.5'|float }} {{ 'abc'|reverse "
      "}} {{ 'abc'|list|length }}",
      "d e 8 1.5 cba 3");
  expect("{{ 'a\nb\n\nc'|indent(2) }}", "a\n  b\n\n  c");
  expect(
      "{{ {} is mapping }} {{ 'a' is iterable }} {{ 1 is number }} {{ true is number }} {{ none is none }} "
      "{{ 'a' is string }} {{ true is true }} {{ 6 is divisibleby 3 }} {{ 1 is in [1] }}",
      "True True True True True True True True True");
}

TEST(ToJson, AsPythonPrints) {
  const std::string kwargs =
      R"({"t": {"z": 1, "a": [1.0, 1e22, true, null, "é\"\n</x>"], "e": {}, "l": []}})";
  expect("{{ t | tojson }}",
         "{\"z\": 1, \"a\": [1.0, 1e+22, true, null, \"é\\\"\\n</x>\"], \"e\": {}, \"l\": []}", kwargs);
  expect("{{ t | tojson(indent=2) }}",
         "{\n  \"z\": 1,\n  \"a\": [\n    1.0,\n    1e+22,\n    true,\n    null,\n    \"é\\\"\\n</x>\"\n  "
         "],\n  \"e\": {},\n  \"l\": []\n}",
         kwargs);
  expect("{{ {'b': 1, 'a': 'é'} | tojson(sort_keys=true, ensure_ascii=true, separators=(',', ':')) }}",
         "{\"a\":\"\\u00e9\",\"b\":1}");
}

TEST(Faults, CarryTheTemplatesOwnText) {
  const Rendering r = render("{{ raise_exception('roles must alternate') }}");
  EXPECT_EQ(r.error.code, Errc::kInvalidArgument);
  EXPECT_EQ(r.error.message, "roles must alternate");
  EXPECT_EQ(r.error.param, "messages");
}

TEST(Faults, AtRendering) {
  EXPECT_THAT(render("{{ x.y }}").error.message, HasSubstr("'x' is undefined"));
  EXPECT_THAT(render("{{ x }}{{ messages[0].content }}").error.message, HasSubstr("has no element 0"));
  EXPECT_THAT(render("{{ 'a' + none }}").error.message, HasSubstr("str + None"));
  EXPECT_THAT(render("{{ 'a' + x }}").error.message, HasSubstr("'x' is undefined"));
  EXPECT_THAT(render("{{ x() }}").error.message, HasSubstr("'x' is undefined"));
  EXPECT_THAT(render("{{ 1 // 0 }}{{ 1 % 0 }}").error.message, HasSubstr("division by zero"));
  EXPECT_THAT(render("{{ 9223372036854775807 + 1 }}").error.message, HasSubstr("64 bits"));
  EXPECT_THAT(render("{{ x | tojson }}").error.message, HasSubstr("not JSON"));
  EXPECT_EQ(render("{{ bos_token }}", "[]", R"({"bos_token": "x"})").error.param, "chat_template_kwargs");
  EXPECT_EQ(render("{{ bos_token }}", "[]", R"({"bos_token": "x"})").error.message,
            "chat_template_kwargs.bos_token: cannot be set here");
}

TEST(Faults, AtParsing) {
  for (const char* source : {"{% if %}", "{{ 1 + }}", "{% for x %}{% endfor %}", "{{ 'a }}", "{{ a", "{# a",
                             "{% if a %}", "{% endif %}x{{", "{{ (1 }}", "{{ ] }}", "{% raw %}",
                             "{% break %}", "{{ 'a\\ud800' }}", "{{ a b }}", "{{ $ }}"}) {
    const auto parsed = ChatTemplate::parse(source);
    ASSERT_FALSE(parsed.ok()) << source;
    EXPECT_THAT(parsed.error().message, HasSubstr("line 1")) << source;
  }
  for (const char* source :
       {"{% include 'x' %}", "{% extends 'x' %}", "{% call f() %}{% endcall %}", "{{ x | groupby('a') }}",
        "{{ x is filter }}", "{{ f(*a) }}", "{% for x in y recursive %}{% endfor %}"}) {
    const auto parsed = ChatTemplate::parse(source);
    ASSERT_FALSE(parsed.ok()) << source;
    EXPECT_EQ(parsed.error().code, Errc::kUnsupported) << source;
  }
}

TEST(Limits, DepthAndWork) {
  const auto nest = [](const char* open, const char* close, int n) {
    std::string s;
    for (int i = 0; i < n; ++i) s += open;
    s += "1";
    for (int i = 0; i < n; ++i) s += close;
    return s;
  };
  for (const std::string& source :
       {"{{ " + nest("(", ")", 10'000) + " }}", "{{ " + nest("[", "]", 10'000) + " }}",
        "{{ " + nest("-", "", 10'000) + " }}", "{{ " + nest("not ", "", 10'000) + " }}",
        "{{ " + nest("1 + ", "", 10'000) + " }}", "{{ a" + nest(".b", "", 10'000) + " }}",
        nest("{% if 1 %}", "{% endif %}", 10'000), "{{ " + nest("1 if ", "", 10'000) + " }}",
        "{{ a" + nest("|trim", "", 10'000) + " }}", "{{ a" + nest("[0:", "]", 10'000) + " }}"}) {
    EXPECT_FALSE(ChatTemplate::parse(source).ok()) << source.substr(0, 40);
  }
  const TemplateLimits small{100'000, 10 << 20};
  EXPECT_EQ(render("{% for a in range(1000000000) %}{% endfor %}", "[]", "{}", small).error.code,
            Errc::kResourceExhausted);
  EXPECT_EQ(render("{{ 'a' * 1000000000000 }}", "[]", "{}", small).error.code, Errc::kResourceExhausted);
  EXPECT_EQ(render("{{ [[]] * 1000000000000 }}", "[]", "{}", small).error.code, Errc::kResourceExhausted);
  EXPECT_EQ(
      render("{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
             "[]", "{}", small)
          .error.code,
      Errc::kResourceExhausted);
  EXPECT_EQ(render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "[]", "{}", small).error.code,
            Errc::kResourceExhausted);
  EXPECT_EQ(render("{% set n = namespace(x=1) %}{% for i in range(999) %}{% set n.x = [n.x] %}{% endfor %}",
                   "[]", "{}", small)
                .error.code,
            Errc::kUnsupported);
  EXPECT_EQ(render("{% set n = namespace() %}{% set n.n = n %}", "[]", "{}", small).error.code,
            Errc::kUnsupported);
}

// Work that leaves no large value behind counts too: each of these reads or compares far more than it makes.
TEST(Limits, WorkIsCountedWhereverItIsDone) {
  const TemplateLimits small{1'000'000, 16 << 20};
  const std::string nested =
      "{% set n = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}"
      "{% set n.y = [n.y, n.y] %}{% endfor %}";
  std::vector<std::string> sources = {
      nested + "{{ n.x == n.y }}",       nested + "{{ n.x < n.y }}",    nested + "{{ n.x }}",
      nested + "{{ n.x ~ '' }}",         nested + "{{ n.x in [n.y] }}", nested + "{{ n.x | tojson }}",
      nested + "{{ [n.x, n.y] | sort }}"};
  for (const char* expression : {"x + x",
                                 "x ~ 'b'",
                                 "x * 2",
                                 "'b' in x",
                                 "(x + 'b') in x",
                                 "x.find('b')",
                                 "x.rfind('b')",
                                 "x.count('b')",
                                 "x.replace('b', '')",
                                 "x.replace('a', '')",
                                 "x.split('b')",
                                 "x.rsplit('b')",
                                 "x.split(none, 1)",
                                 "x.splitlines()",
                                 "x[0]",
                                 "x[:1]",
                                 "x[::-1]",
                                 "x | length",
                                 "x | upper",
                                 "x.lower()",
                                 "x is upper",
                                 "x | title",
                                 "x.capitalize()",
                                 "x.isalpha()",
                                 "x.strip('a')",
                                 "(' ' * 100000) | trim",
                                 "x == x ~ ''",
                                 "x | tojson",
                                 "[x] | string",
                                 "x | list",
                                 "x | reverse",
                                 "x | first",
                                 "x | int",
                                 "x | float",
                                 "x | indent",
                                 "[x, x] | join",
                                 "x.join(['', ''])",
                                 "x.startswith(x)",
                                 "range(100000) | list",
                                 "[1] * 100000",
                                 "(range(9) | list) * 9000",
                                 "x | sort",
                                 "x | unique"}) {
    sources.push_back("{% set x = 'a' * 100000 %}{% for i in range(100000) %}{% if " +
                      std::string(expression) + " %}{% endif %}{% endfor %}");
  }
  sources.emplace_back(
      "{% set x = 'a' * 100000 %}{% for i in range(100000) %}{% set y %}{{ x }}{% endset %}{% endfor %}");
  std::string names = "{% set n = namespace() %}", keys, arguments;
  for (int i = 0; i < 8000; ++i) {
    names += "{% set n.a" + std::to_string(i) + " = 1 %}";
    keys += "'" + std::to_string(i) + "': 1, ";
    arguments += "a" + std::to_string(i) + " = 1, ";
  }
  sources.push_back(names);
  sources.push_back("{{ {" + keys + "} }}");
  sources.push_back("{{ dict(" + arguments + ") }}");
  for (const std::string& source : sources) {
    EXPECT_EQ(render(source, "[]", "{}", small).error.code, Errc::kResourceExhausted)
        << source.substr(0, 200) << source.substr(source.size() - 60);
  }
}

// The bound is one of bytes made in all: 16 bytes may double until 256 MiB were made, and no further.
TEST(Limits, DoublingTextStopsAtTheBudget) {
  const auto doubled = [](int times) {
    return render("{% set ns = namespace(a='aaaaaaaaaaaaaaaa') %}{% for i in range(" + std::to_string(times) +
                  ") %}{% set ns.a = ns.a + ns.a %}{% endfor %}{{ ns.a | length }}");
  };
  EXPECT_EQ(TemplateLimits{}.bytes_max, 256u << 20);
  EXPECT_EQ(doubled(20).text, std::to_string(16 << 20));
  EXPECT_EQ(doubled(24).error.code, Errc::kResourceExhausted);
  EXPECT_EQ(doubled(60).error.message, "chat template: too much text");
}

// What the templates of Llama 3, Qwen3 and ChatML do with a message, on three of a megabyte: half of the
// budget is enough.
TEST(Limits, LongMessagesFit) {
  const std::string chatml =
      "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
      "'<|im_end|>' + '\n' }}{% endfor %}";
  const std::string llama =
      "{% if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] | trim %}"
      "{% set messages = messages[1:] %}{% endif %}{% for message in messages %}"
      "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + "
      "'<|eot_id|>' }}{% endfor %}";
  const std::string qwen3 =
      "{% set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}"
      "{% for message in messages[::-1] %}{% set index = (messages|length - 1) - loop.index0 %}"
      "{% if ns.multi_step_tool and message.role == 'user' and message.content is string and not "
      "(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}"
      "{% set ns.multi_step_tool = false %}{% set ns.last_query_index = index %}{% endif %}{% endfor %}"
      "{% for message in messages %}{% set content = message.content %}{% set reasoning = '' %}"
      "{% if '</think>' in content %}"
      "{% set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}"
      "{% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}"
      "{{ '<|im_start|>' + message.role + '\n<think>\n' + reasoning.strip('\n') + '\n</think>\n\n' + "
      "content.lstrip('\n') + '<|im_end|>\n' }}{% endfor %}";
  std::string text;
  while (text.size() < 1 << 19) text += "Städte und 東京, \"quoted\" <b>\n\n";
  ordered_json messages = ordered_json::array();
  for (const char* role : {"user", "assistant", "user"}) {
    messages.push_back({{"role", role}, {"content", "<think>" + text + "</think>" + text}});
  }
  for (const std::string& source : {chatml, llama, qwen3}) {
    const Rendering r = render(source, messages.dump(), "{}",
                               {.steps_max = 100'000, .bytes_max = TemplateLimits{}.bytes_max / 2});
    EXPECT_EQ(r.error.message, "") << source;
    EXPECT_GT(r.text.size(), 6 * text.size());
  }
}

// A raised message goes to the client.
TEST(Limits, RaisedTextIsCut) {
  const Rendering r = render("{{ raise_exception('é' * 100000) }}");
  EXPECT_EQ(r.error.code, Errc::kInvalidArgument);
  EXPECT_EQ(r.error.message.size(), 2000u);
}

TEST(Limits, DeepInput) {
  ordered_json deep = "x";
  for (int i = 0; i < 5000; ++i) deep = ordered_json::array({std::move(deep)});
  const auto parsed = ChatTemplate::parse("{{ messages | length }}");
  EXPECT_EQ(parsed->render({{{"role", "user"}, {"content", deep}}}, {}).error().code, Errc::kUnsupported);
}

TEST(Inputs, NoToolsIsNone) {
  expect("{{ tools is defined }}{{ tools is none }}{{ documents is defined }}", "TrueTrueFalse");
}

// The text of the ranges that came from the request.
std::vector<std::string> tainted(const Rendering& r) {
  std::vector<std::string> out;
  for (const ByteRange& range : r.untrusted) out.push_back(r.text.substr(range.begin, range.size()));
  return out;
}

TEST(Taint, FollowsTextThroughOperations) {
  const std::string messages = R"([{"role": "user", "content": "  one<two>three  ", "x": {"k": [1, "v"]}}])";
  const auto check = [&](const std::string& source, const std::string& text,
                         const std::vector<std::string>& spans) {
    const Rendering r = render(source, messages);
    EXPECT_EQ(r.error.message, "") << source;
    EXPECT_EQ(r.text, text) << source;
    EXPECT_EQ(tainted(r), spans) << source;
  };
  check("{% set c = messages[0].content %}<|{{ messages[0].role }}|>{{ c | trim }}<|end|>",
        "<|user|>one<two>three<|end|>", {"one<two>three"});
  check("{% set c = messages[0].content %}{{ 'a' + c.strip() + 'b' }}", "aone<two>threeb", {"one<two>three"});
  check("{{ messages[0].content.split('<')[-1].strip() ~ '!' }}", "two>three!", {"two>three"});
  check("{{ messages[0].content.replace('two', '2').strip() }}", "one<2>three", {"one<", ">three"});
  check("{{ (messages[0].content | trim | upper)[0:3] }}", "ONE", {"ONE"});
  check("{{ messages[0].x | tojson }}", "{\"k\": [1, \"v\"]}", {"\"k\"", "\"v\""});
  check("{% for k, v in messages[0].x.items() %}{{ k }}:{{ v }}{% endfor %}", "k:[1, 'v']", {"k", "'v'"});
  check("{% set b %}[{{ messages[0].content | trim }}]{% endset %}{{ b }}", "[one<two>three]",
        {"one<two>three"});
  check("{{ [messages[0].content | trim, 'z'] | join('-') }}", "one<two>three-z", {"one<two>three"});
  check("{{ (messages[0].content | trim)[::-1] }}{{ 'lit'[::-1] }}", "eerht>owt<enotil", {"eerht>owt<eno"});
}

// C06 (e) stands in Faults; C05: what templates make of a mapping.
TEST(ToolCalls, ArgumentsAsMapping) {
  const std::string messages =
      R"([{"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function",
      "function": {"name": "w", "arguments": {"city": "Paris"}}}]}])";
  const std::string loop = "{% for m in messages %}";
  EXPECT_EQ(render(loop + "{{ m.tool_calls[0].function.arguments | tojson }}{% endfor %}", messages).text,
            "{\"city\": \"Paris\"}");
  EXPECT_EQ(
      render(
          loop +
              "{% for k,v in m.tool_calls[0].function.arguments|items %}{{k}}={{v}}{% endfor %}{% endfor %}",
          messages)
          .text,
      "city=Paris");
  EXPECT_EQ(render(loop + "{% set a = m.tool_calls[0].function.arguments %}{{ a if a is string else a|tojson "
                          "}}{% endfor %}",
                   messages)
                .text,
            "{\"city\": \"Paris\"}");
}

}  // namespace
}  // namespace lariat
