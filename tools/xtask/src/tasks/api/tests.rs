use super::*;

const PAGE: &str = "<pre class=\"rust item-decl\"><code><div class=\"code-attribute\">#[non_exhaustive]\
    </div>pub struct A&lt;'a&gt; {<details><summary \
    class=\"hideme\"><span>Show 1 field</span></summary>\n    pub b: \
    <a href=\"x\">u32</a>,\n}</code></pre><h3 class=\"code-header\">impl A&lt;'_&gt;</h3>\
    <h4 class=\"code-header\">pub fn <a>c</a>(&amp;self) -&gt; <a>u32</a></h4>\
    <h2 id=\"deref-methods-%5Bu8%5D\"><h4 class=\"code-header\">pub fn <a>len</a>(&amp;self)</h4>\
    <h2 id=\"trait-implementations\"><h3 class=\"code-header\">impl Iterator for A</h3><h4 class=\"code-header\">type <a>Item</a> = u32</h4>\
    <h4 class=\"code-header\">fn <a>next</a>(&amp;mut self)</h4>\
    <h3 class=\"code-header\">impl !Send for A</h3><h3 class=\"code-header\">impl Freeze for A</h3>\
    <h2 id=\"blanket-implementations\"><h3 class=\"code-header\">impl&lt;T&gt; Any for T</h3>";

#[test]
fn page_yields_one_line_per_item() {
    let wanted = [
        "#[non_exhaustive] pub struct A<'a> { pub b: u32, }",
        "pub fn c(&self) -> u32",
        "impl Iterator for A",
        "type Item = u32",
        "impl !Send for A",
    ];
    assert_eq!(declarations(PAGE), wanted);
    let module = "<div class=\"item-name\" id=\"x\"><code>pub use <a>x</a>::Y;</code></div>";
    assert_eq!(declarations(module), ["pub use x::Y;"]);
}

#[test]
fn difference_lists_both_directions() {
    let found = ["a", "c"].map(str::to_owned).into();
    assert_eq!(difference("a\nb\n", &found), ["- b", "+ c"]);
    assert_eq!(difference("a\nc\n", &found), [""; 0]);
}
