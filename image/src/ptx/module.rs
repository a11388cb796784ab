//! The statements of a PTX module (PTX ISA, "Directives").

use std::collections::{HashMap, HashSet};

use super::lexer::{Lexer, Token};
use super::variable::{self, Values, Variable};
use crate::content::{Content, Function, Global, Parameter, Uses, is_of_heap, supplied_by_driver};
use crate::problem::Problem;
use crate::target::Target;

/// The linkage directives in front of a declaration.
#[derive(Clone, Copy, Default)]
struct Linkage {
    external: bool,
    /// `.weak` or `.common`: may be defined more than once.
    mergeable: bool,
}

/// A function and what its body needs to be finished.
struct Draft<'a> {
    function: Function,
    /// Every word in its body, for shared variables of the module.
    words: HashSet<&'a [u8]>,
}

/// A module while it is read.
pub(super) struct Module<'a> {
    lexer: Lexer<'a>,
    content: Content,
    functions: Vec<Draft<'a>>,
    /// Functions declared without a body so far, and whether `.extern` precedes, in order.
    declared: Vec<(&'a [u8], bool)>,
    defined: HashSet<&'a [u8]>,
    variables: HashMap<&'a [u8], usize>,
    shared: Vec<Variable<'a>>,
    const_bytes: u64,
    values: Values<'a>,
}

impl<'a> Module<'a> {
    pub(super) fn new(text: &'a [u8]) -> Result<Self, Problem> {
        Ok(Module {
            lexer: Lexer::new(text)?,
            content: Content {
                address_bits: 32,
                ..Content::default()
            },
            functions: Vec::new(),
            declared: Vec::new(),
            defined: HashSet::new(),
            variables: HashMap::new(),
            shared: Vec::new(),
            const_bytes: 0,
            values: Values::new(),
        })
    }

    fn fault<T>(&self, what: impl Into<String>) -> Result<T, Problem> {
        self.lexer.fault(what)
    }

    pub(super) fn read(mut self) -> Result<Content, Problem> {
        if self.lexer.peek() != Token::Directive(b"version") {
            return self.fault("PTX must begin with `.version`");
        }
        self.lexer.next()?;
        self.content.ptx_version = Some(self.version()?);
        let mut linkage = Linkage::default();
        loop {
            let line = self.lexer.line();
            let token = self.lexer.next()?;
            // Only `.target` and these may follow `.version`.
            let early = matches!(
                token,
                Token::End | Token::Directive(b"version" | b"target" | b"file" | b"pragma")
            );
            if self.content.target.is_none() && !early {
                return Err(Problem::syntax(line, "`.target` must come before this"));
            }
            match token {
                Token::End => break,
                // `@@DWARF` and its data, as PTX before 2.0 has them: skips the rest of the line.
                Token::Mark(b'@') if self.lexer.peek() == Token::Mark(b'@') => {
                    while self.lexer.line() == line && self.lexer.peek() != Token::End {
                        self.lexer.next()?;
                    }
                }
                Token::Directive(word) => {
                    linkage = self.directive(word, linkage)?;
                }
                Token::Word(word) => {
                    let word = String::from_utf8_lossy(word.get(..64).unwrap_or(word));
                    return Err(Problem::syntax(
                        line,
                        format!("`{word}` in place of a directive"),
                    ));
                }
                Token::Mark(b'}') => return Err(Problem::syntax(line, "this `}` closes nothing")),
                other => {
                    return Err(Problem::syntax(
                        line,
                        format!("{} in place of a directive", shown(other)),
                    ));
                }
            }
        }
        if self.content.target.is_none() {
            return self.fault("`.target` is missing");
        }
        Ok(self.finish())
    }

    fn version(&mut self) -> Result<(u16, u16), Problem> {
        if let Token::Number(text) = self.lexer.peek()
            && let Ok(text) = std::str::from_utf8(text)
            && let Some((major, minor)) = text.split_once('.')
            && let (Ok(major), Ok(minor)) = (major.parse(), minor.parse())
        {
            self.lexer.next()?;
            return Ok((major, minor));
        }
        self.fault("`.version` needs a number such as 8.0")
    }

    /// One module-level directive; gives the linkage that holds for the next one.
    fn directive(&mut self, word: &'a [u8], linkage: Linkage) -> Result<Linkage, Problem> {
        match word {
            b"version" => return self.fault("a second `.version`"),
            b"target" => self.target()?,
            b"address_size" => {
                self.content.address_bits = match variable::number(&mut self.lexer)? {
                    32 => 32,
                    64 => 64,
                    _ => return self.fault("`.address_size` is 32 or 64"),
                };
            }
            b"extern" | b"weak" | b"common" | b"visible" => {
                return Ok(Linkage {
                    external: linkage.external || word == b"extern",
                    mergeable: linkage.mergeable || matches!(word, b"weak" | b"common"),
                });
            }
            b"entry" | b"func" => self.function(word == b"entry", linkage)?,
            b"global" | b"const" | b"shared" | b"local" | b"tex" => self.variable(word, linkage)?,
            b"file" | b"loc" => self.numbers()?,
            b"section" => {
                self.lexer.next()?;
                // Its name begins with a dot or not.
                self.braces()?;
            }
            b"alias" => {
                // The first name gets the second one's body.
                if let Token::Word(name) = self.lexer.peek() {
                    self.defined.insert(name);
                }
                self.skip_statement()?;
            }
            // `.pragma` and what later versions add.
            _ => self.skip_statement()?,
        }
        Ok(Linkage::default())
    }

    fn target(&mut self) -> Result<(), Problem> {
        loop {
            let Token::Word(name) = self.lexer.peek() else {
                return self.fault("`.target` needs a name such as sm_90");
            };
            self.lexer.next()?;
            if self.content.target.is_none() {
                self.content.target = std::str::from_utf8(name).ok().and_then(Target::from_name);
                if self.content.target.is_none() {
                    return self
                        .fault("the first name of `.target` is an architecture such as sm_90");
                }
            }
            if !self.lexer.take(b',')? {
                return Ok(());
            }
        }
    }

    /// Numbers, strings, words and commas of `.file` and `.loc`, which end with their line, not
    /// with a mark.
    fn numbers(&mut self) -> Result<(), Problem> {
        while matches!(
            self.lexer.peek(),
            Token::Number(_) | Token::Text | Token::Mark(b',' | b'+')
        ) {
            let comma = self.lexer.peek() == Token::Mark(b',');
            self.lexer.next()?;
            if comma && matches!(self.lexer.peek(), Token::Word(_)) {
                self.lexer.next()?;
            }
        }
        Ok(())
    }

    /// Up to the `;`, the end of a braced block, or what can only begin another statement.
    fn skip_statement(&mut self) -> Result<(), Problem> {
        loop {
            match self.lexer.peek() {
                Token::Mark(b'{') => return self.braces(),
                Token::Mark(b';') => {
                    self.lexer.next()?;
                    return Ok(());
                }
                Token::End
                | Token::Mark(b'}')
                | Token::Directive(
                    b"entry" | b"func" | b"visible" | b"extern" | b"weak" | b"global" | b"const"
                    | b"target" | b"address_size",
                ) => return Ok(()),
                _ => {
                    self.lexer.next()?;
                }
            }
        }
    }

    /// A `{ ... }` whose content does not matter, and everything in front of it.
    fn braces(&mut self) -> Result<(), Problem> {
        let opened = self.lexer.line();
        match self.skip_to_matching(b'{', b'}')? {
            true => Ok(()),
            false => Err(Problem::syntax(opened, "this `{` is not closed")),
        }
    }

    fn variable(&mut self, space: &[u8], linkage: Linkage) -> Result<(), Problem> {
        let found = variable::declaration(&mut self.lexer, true, &mut self.values)?;
        if !self.lexer.take(b';')? {
            return self.fault("a declaration without its `;`");
        }
        for variable in found {
            let name = String::from_utf8_lossy(variable.name).into_owned();
            match space {
                b"shared" if !linkage.external => self.shared.push(variable),
                b"shared" | b"local" => {}
                _ if variable.texture || space == b"tex" => self.content.textures.push(name),
                _ if variable.surface => self.content.surfaces.push(name),
                _ => self.global(name, variable, space == b"const", linkage)?,
            }
        }
        Ok(())
    }

    fn global(
        &mut self,
        name: String,
        variable: Variable<'a>,
        constant: bool,
        linkage: Linkage,
    ) -> Result<(), Problem> {
        if constant && !linkage.external {
            self.const_bytes =
                padded(self.const_bytes, variable.align).saturating_add(variable.size);
        }
        let global = Global {
            name,
            size: variable.size,
            constant,
            managed: variable.managed,
            initial: variable.initial,
            external: linkage.external,
        };
        // A definition and declarations of the same name may come in any order.
        let index = self.variables.get(variable.name).copied();
        match index.and_then(|index| self.content.globals.get_mut(index)) {
            Some(known) if !linkage.external && known.external => *known = global,
            Some(_) if linkage.external || linkage.mergeable => {}
            Some(_) => return self.fault(format!("`{}` is defined already", global.name)),
            None => {
                self.variables
                    .insert(variable.name, self.content.globals.len());
                self.content.globals.push(global);
            }
        }
        Ok(())
    }

    fn function(&mut self, is_entry: bool, linkage: Linkage) -> Result<(), Problem> {
        // In front of the name: attributes, and in parentheses the result of a device function.
        let name = loop {
            match self.lexer.peek() {
                Token::Word(name) => break name,
                Token::Mark(b'(') => {
                    self.parameters()?;
                }
                Token::Directive(_) => {
                    self.lexer.next()?;
                    if self.lexer.peek() == Token::Mark(b'(') {
                        self.parentheses()?;
                    }
                }
                _ => return self.fault("a function without a name"),
            }
        };
        let line = self.lexer.line();
        self.lexer.next()?;
        let mut function = Function {
            name: String::from_utf8_lossy(name).into_owned(),
            is_entry,
            ..Function::default()
        };
        if self.lexer.peek() == Token::Mark(b'(') {
            function.parameters = self.parameters()?;
        }
        loop {
            match self.lexer.peek() {
                Token::Mark(b'{') => break,
                Token::Mark(b';') => {
                    self.lexer.next()?;
                    self.declared.push((name, linkage.external));
                    return Ok(());
                }
                Token::Directive(word) => {
                    self.lexer.next()?;
                    match word {
                        b"maxntid" => {
                            let shape = self.shape()?;
                            function.max_threads =
                                Some(shape.into_iter().fold(1, u32::saturating_mul));
                        }
                        b"reqntid" => function.required_threads = Some(self.shape()?),
                        b"reqnctapercluster" => function.required_cluster = Some(self.shape()?),
                        b"explicitcluster" => function.needs_cluster = true,
                        b"maxclusterrank" => {
                            let blocks = variable::number(&mut self.lexer)?;
                            function.max_cluster_blocks = u32::try_from(blocks).ok();
                        }
                        _ => self.tuning()?,
                    }
                }
                Token::End => return self.fault("the text ends inside a function's head"),
                _ => {
                    return self.fault(
                        "a function needs a body in `{ }`, or a `;` if it is only declared",
                    );
                }
            }
        }
        if !self.defined.insert(name) {
            return Err(Problem::syntax(
                line,
                format!("`{}` has a body already", function.name),
            ));
        }
        let words = self.body(&mut function)?;
        function.uses = uses(&words);
        self.functions.push(Draft { function, words });
        Ok(())
    }

    /// The operands of a performance directive: numbers, strings, or something in parentheses.
    fn tuning(&mut self) -> Result<(), Problem> {
        loop {
            match self.lexer.peek() {
                Token::Number(_) | Token::Text | Token::Word(_) | Token::Mark(b',') => {
                    // The `;` of `.pragma "x";` inside a head does not end the head.
                    let text = self.lexer.next()? == Token::Text;
                    if text && self.lexer.take(b';')? {
                        return Ok(());
                    }
                }
                Token::Mark(b'(') => self.parentheses()?,
                _ => return Ok(()),
            }
        }
    }

    fn parentheses(&mut self) -> Result<(), Problem> {
        match self.skip_to_matching(b'(', b')')? {
            true => Ok(()),
            false => self.fault("a `(` is not closed"),
        }
    }

    /// Takes tokens up to the mark that closes the first opening one; false if there is none.
    fn skip_to_matching(&mut self, opening: u8, closing: u8) -> Result<bool, Problem> {
        let mut depth = 0_usize;
        loop {
            match self.lexer.next()? {
                Token::Mark(mark) if mark == opening => depth += 1,
                Token::Mark(mark) if mark == closing && depth <= 1 => return Ok(true),
                Token::Mark(mark) if mark == closing => depth -= 1,
                Token::End => return Ok(false),
                _ => {}
            }
        }
    }

    /// One to three numbers; those left out are 1.
    fn shape(&mut self) -> Result<[u32; 3], Problem> {
        let mut shape = [1; 3];
        for (index, side) in shape.iter_mut().enumerate() {
            if index > 0 && !self.lexer.take(b',')? {
                break;
            }
            let value = variable::number(&mut self.lexer)?;
            *side = u32::try_from(value).unwrap_or(u32::MAX);
        }
        Ok(shape)
    }

    /// A parenthesised list, laid out as CUDA lays out parameters: each at the next multiple of its
    /// alignment (CUDA driver API, `cuLaunchKernel`).
    fn parameters(&mut self) -> Result<Vec<Parameter>, Problem> {
        self.lexer.next()?;
        let mut found = Vec::new();
        let mut end = 0_u64;
        while !self.lexer.take(b')')? {
            let Token::Directive(_) = self.lexer.peek() else {
                // `_` is a result or parameter that is not used.
                if let Token::Word(_) = self.lexer.next()? {
                    self.lexer.take(b',')?;
                    continue;
                }
                return self.fault("a parameter begins with `.param` or `.reg`");
            };
            // The declaration skips the state space, which has no type.
            let list = variable::declaration(&mut self.lexer, false, &mut self.values)?;
            for parameter in list {
                let start = padded(end, parameter.align);
                end = start.saturating_add(parameter.size);
                let offset = u32::try_from(start).unwrap_or(u32::MAX);
                let size = u32::try_from(parameter.size).unwrap_or(u32::MAX);
                found.push(Parameter { offset, size });
            }
            // Either a comma and another one, or the end.
            if self.lexer.take(b',')? == (self.lexer.peek() == Token::Mark(b')')) {
                return self.fault("a parameter list without its `)`");
            }
        }
        Ok(found)
    }

    /// A body from `{` to its `}`: the words in it; its shared and local variables go into
    /// `function`.
    fn body(&mut self, function: &mut Function) -> Result<HashSet<&'a [u8]>, Problem> {
        let opened = self.lexer.line();
        let mut words = HashSet::new();
        let mut depth = 0_usize;
        loop {
            match self.lexer.next()? {
                Token::Mark(b'{') => depth += 1,
                Token::Mark(b'}') if depth <= 1 => return Ok(words),
                Token::Mark(b'}') => depth -= 1,
                Token::Word(word) => {
                    words.insert(word);
                }
                Token::Directive(space @ (b"shared" | b"local"))
                    if matches!(self.lexer.peek(), Token::Directive(_)) =>
                {
                    for variable in variable::declaration(&mut self.lexer, true, &mut self.values)?
                    {
                        let total = match space {
                            b"shared" => &mut function.shared_bytes,
                            _ => &mut function.local_bytes,
                        };
                        *total = padded(*total, variable.align).saturating_add(variable.size);
                    }
                }
                Token::End => return Err(Problem::syntax(opened, "this `{` is not closed")),
                _ => {}
            }
        }
    }

    fn finish(self) -> Content {
        let mut content = self.content;
        let mut used = self.values.words;
        // Of one name the last declaration.
        let shared = self
            .shared
            .iter()
            .enumerate()
            .map(|(index, v)| (v.name, (index, v)));
        let shared: HashMap<&[u8], (usize, &Variable)> = shared.collect();
        for draft in self.functions {
            let mut function = draft.function;
            function.const_bytes = self.const_bytes;
            let named = draft
                .words
                .iter()
                .filter_map(|word| shared.get(word).copied());
            let mut named: Vec<(usize, &Variable)> = named.collect();
            // In the order of the text, so that padding does not depend on hashing.
            named.sort_unstable_by_key(|(index, _)| *index);
            for (_, variable) in named {
                function.shared_bytes =
                    padded(function.shared_bytes, variable.align).saturating_add(variable.size);
            }
            content.functions.push(function);
            used.extend(draft.words);
        }
        let mut listed = HashSet::new();
        for (name, external) in self.declared {
            let text = String::from_utf8_lossy(name).into_owned();
            // `ptxas` ignores an unused `.extern` and refuses any other declaration without a body.
            let wanted = !external || used.contains(name);
            content.uses_heap |= wanted && !self.defined.contains(name) && is_of_heap(&text);
            if wanted
                && !self.defined.contains(name)
                && !supplied_by_driver(&text)
                && listed.insert(name)
            {
                content.undefined.push(text);
            }
        }
        for global in &content.globals {
            if global.external && used.contains(global.name.as_bytes()) {
                content.undefined.push(global.name.clone());
            }
        }
        content
    }
}

/// What a body with these words uses of its launch.
fn uses(words: &HashSet<&[u8]>) -> Uses {
    let has = |word: &[u8]| words.contains(word);
    let any = |starts: &[&[u8]]| {
        let mut words = words.iter();
        words.any(|word| starts.iter().any(|start| word.starts_with(start)))
    };
    Uses {
        device_launch: any(&[
            b"cudaLaunchDevice",
            b"cudaCDP2LaunchDevice",
            b"__cudaCDP2LaunchDevice",
        ]),
        grid_barrier: has(b"%envreg1")
            && has(b"%envreg2")
            && any(&[b"atom."])
            && any(&[b"bar.", b"barrier."]),
        early_trigger: has(b"griddepcontrol.launch_dependents"),
        dependency_wait: has(b"griddepcontrol.wait"),
    }
}

/// `at` rounded up to a multiple of `align`.
fn padded(at: u64, align: u64) -> u64 {
    at.checked_next_multiple_of(align.max(1))
        .unwrap_or(u64::MAX)
}

fn shown(token: Token<'_>) -> String {
    match token {
        Token::Number(_) => "a number".to_owned(),
        Token::Text => "a string".to_owned(),
        Token::Mark(mark) => format!("`{}`", mark as char),
        Token::Directive(_) | Token::Word(_) | Token::End => "this".to_owned(),
    }
}
